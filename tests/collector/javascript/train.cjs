// Records a loss and a number of tokens at each step: node train.cjs <http/json|http/protobuf> <steps>
const { MeterProvider, PeriodicExportingMetricReader, AggregationTemporality } = require("@opentelemetry/sdk-metrics");
const { resourceFromAttributes } = require("@opentelemetry/resources");

const [protocol, steps] = [process.argv[2], Number(process.argv[3])];
const { OTLPMetricExporter } = require(
  protocol === "http/json" ? "@opentelemetry/exporter-metrics-otlp-http" : "@opentelemetry/exporter-metrics-otlp-proto",
);

const exporter = new OTLPMetricExporter({ temporalityPreference: AggregationTemporality.DELTA });
const provider = new MeterProvider({
  resource: resourceFromAttributes({
    "ml.experiment.id": process.env.OTEL_ML_EXPERIMENT_ID,
    "service.name": "trainer",
    "service.instance.id": `node-${process.pid}`,
    "ml.rank": Number(process.env.RANK),
  }),
  readers: [new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 100, exportTimeoutMillis: 100 })],
});
const meter = provider.getMeter("training");
const loss = meter.createHistogram("loss");
const tokens = meter.createCounter("tokens");

async function train() {
  for (let step = 0; step < steps; step += 1) {
    loss.record(step + Number(process.env.RANK), { "ml.step": step });
    tokens.add(10, { "ml.step": step, "ml.reduction": "sum" });
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await provider.shutdown();
}

train();
