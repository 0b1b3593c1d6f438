"""What is compared with the packages whose interfaces `otel_ml.compat` has."""
