"""`python -m otel_ml_service` is `otel-ml`."""

from __future__ import annotations

import sys

from otel_ml_service.cli import main

sys.exit(main())
