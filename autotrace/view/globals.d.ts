// The vendored charts, a classic script.
declare const uPlot: any;
