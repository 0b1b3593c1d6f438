# docker build --target service .     otel-ml, MLflow's server, TensorBoard
# docker build --target collector .   the OpenTelemetry Collector with collector-config/
FROM otel/opentelemetry-collector-contrib:0.159.0 AS upstream

FROM python:3.12.11-slim-bookworm AS base
# Volumes are made with the owner of the folder they are mounted on.
RUN useradd --uid 10001 --create-home otel-ml \
 && install --directory --owner=otel-ml /runs /queue /mlflow
WORKDIR /home/otel-ml

FROM base AS collector
# The upstream image has no shell, so nothing in it could ask the Collector whether it is healthy.
COPY --from=upstream /otelcol-contrib /usr/local/bin/otelcol
COPY collector-config /etc/otel-ml
USER otel-ml
ENTRYPOINT ["otelcol"]
CMD ["--config", "/etc/otel-ml/gateway.yaml"]

FROM base AS service
COPY pyproject.toml README.md LICENSE /src/
COPY otel_ml /src/otel_ml
COPY exporters /src/exporters
COPY service /src/service
COPY docs/errors.md /src/docs/errors.md
COPY collector-config /src/collector-config
COPY deploy /src/deploy
COPY monitoring /src/monitoring
# The service records nothing: it needs no compiled part.
RUN HATCH_BUILD_NO_HOOKS=true pip install --no-cache-dir "/src[grpc,tensorboard,mlflow,wandb]" && rm -r /src
USER otel-ml
CMD ["otel-ml", "serve"]
