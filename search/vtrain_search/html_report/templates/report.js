// Draws every chart of the page, and again at paper width before it is printed.
(function () {
  "use strict";
  var charts = JSON.parse(document.getElementById("charts").textContent);
  // Where the page is narrow, a legend takes more lines: they must not come out of the bars.
  function height(chart, width) {
    return chart.layout.height + (width < 600 && chart.layout.showlegend !== false ? 90 : 0);
  }
  var config = { displayModeBar: false, responsive: true, displaylogo: false };
  function node(key) { return document.getElementById("plot-" + key); }
  Object.keys(charts).forEach(function (key) {
    var chart = charts[key];
    chart.layout.height = height(chart, node(key).clientWidth);
    node(key).style.height = chart.layout.height + "px";
    Plotly.newPlot(node(key), chart.data, chart.layout, config);
  });
  function resize(width) {
    Object.keys(charts).forEach(function (key) {
      Plotly.relayout(node(key), width ? { width: width } : { width: null, autosize: true });
    });
  }
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) {
      d.dataset.was = d.open ? "open" : "";
      d.open = true;
    });
    resize(660);
  });
  window.addEventListener("afterprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = d.dataset.was === "open"; });
    resize(null);
  });
})();
