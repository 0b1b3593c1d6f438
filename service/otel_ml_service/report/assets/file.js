// A file: everything is here already.
watchCharts();
watchHeat();
watchSteps();
