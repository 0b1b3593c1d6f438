"""`python -m otel_ml_exporters` is `otel-ml`."""

from __future__ import annotations

import sys

from otel_ml_exporters.cli import main

sys.exit(main())
