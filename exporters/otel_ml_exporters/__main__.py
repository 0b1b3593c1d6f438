"""`python -m otel_ml_exporters` is `otel-ml`, as `python -m otel_ml_service` is: scripts and older workers call it."""

from __future__ import annotations

import sys

from otel_ml_service.cli import main

sys.exit(main())
