//! The dashboard for Grafana, made from the tables of docs/metrics.md. It has a panel for each
//! metric, so that none is missing and none is there that does not exist.

use crate::cargo::root;
use serde_json::{Value, json};

const METRICS: &str = "docs/metrics.md";
const DASHBOARD: &str = "ops/grafana.json";
/// The head of a table of metrics.
const HEAD: &str = "| name | kind | labels |";
/// The grid of Grafana is 24 wide: two panels beside each other.
const WIDTH: usize = 12;
const HEIGHT: usize = 8;

/// A metric as the table has it.
#[derive(Debug, PartialEq, Eq)]
struct Metric<'a> {
    section: &'a str,
    name: &'a str,
    kind: &'a str,
    labels: Vec<&'a str>,
}

/// Writes the dashboard.
pub(crate) fn write() -> Result<bool, String> {
    let dashboard = dashboard()?;
    std::fs::write(root().join(DASHBOARD), dashboard)
        .map_err(|why| format!("{DASHBOARD}: {why}"))?;
    Ok(true)
}

fn dashboard() -> Result<String, String> {
    let docs = read(METRICS)?;
    let dashboard = dashboard_of(&metrics(&docs)?);
    serde_json::to_string_pretty(&dashboard).map(|text| text + "\n").map_err(|why| why.to_string())
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(path)).map_err(|why| format!("{path}: {why}"))
}

/// Reads the tables. A metric that stands in two tables is the first one's.
fn metrics(docs: &str) -> Result<Vec<Metric<'_>>, String> {
    let mut found = Vec::<Metric<'_>>::new();
    let mut section = "";
    let mut in_table = false;
    for line in docs.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        in_table = line == HEAD || (in_table && line.starts_with('|'));
        if !in_table || line == HEAD || line.starts_with("|---") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, kind, labels] = cells[..] else {
            return Err(format!("{METRICS}: a row needs three cells: {line}"));
        };
        if !["counter", "gauge", "histogram"].contains(&kind) {
            return Err(format!("{METRICS}: the kind `{kind}` is unknown: {line}"));
        }
        let labels = quoted(labels.split(':').next().unwrap_or_default());
        for name in quoted(names) {
            if !found.iter().any(|metric| metric.name == name) {
                found.push(Metric { section, name, kind, labels: labels.clone() });
            }
        }
    }
    if found.is_empty() { Err(format!("{METRICS} has no table of metrics")) } else { Ok(found) }
}

/// Returns the words in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn dashboard_of(metrics: &[Metric<'_>]) -> Value {
    let mut panels = Vec::new();
    let mut section = "";
    let mut y = 0;
    let mut x = 0;
    for metric in metrics {
        if metric.section != section {
            y += if x > 0 { HEIGHT } else { 0 };
            section = metric.section;
            let place = json!({"x": 0, "y": y, "w": 2 * WIDTH, "h": 1});
            panels.push(json!({"type": "row", "title": section, "gridPos": place}));
            x = 0;
            y += 1;
        }
        panels.push(panel(metric, x, y));
        (x, y) = if x == 0 { (WIDTH, y) } else { (0, y + HEIGHT) };
    }
    for (number, panel) in panels.iter_mut().enumerate() {
        panel["id"] = json!(number + 1);
    }
    json!({
        "title": "Holdline",
        "uid": "holdline",
        "tags": ["holdline"],
        "schemaVersion": 36,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {
                "name": "datasource", "label": "Prometheus", "type": "datasource",
                "query": "prometheus",
            },
            {
                "name": "class", "label": "Class", "type": "query", "refresh": 2,
                "datasource": source(), "multi": true, "includeAll": true, "allValue": ".*",
                "query": "label_values({__name__=~\"holdline_.+\"}, class)",
                "current": {"text": "All", "value": "$__all"},
            },
        ]},
        "panels": panels,
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panel(metric: &Metric<'_>, x: usize, y: usize) -> Value {
    let Metric { name, labels, .. } = metric;
    let legend = |before: &str, words: &[&str]| {
        let shown: Vec<String> = words.iter().map(|word| format!("{{{{{word}}}}}")).collect();
        format!("{before}{}", shown.join(" ")).trim().to_owned()
    };
    let class = if labels.contains(&"class") { "{class=~\"$class\"}" } else { "" };
    let by = |more: &str| {
        let all: Vec<&str> = [more].into_iter().chain(labels.iter().copied()).collect();
        let all: Vec<&str> = all.into_iter().filter(|label| !label.is_empty()).collect();
        if all.is_empty() { String::new() } else { format!(" by ({})", all.join(", ")) }
    };
    let queries = match metric.kind {
        "counter" => {
            let rate = format!("sum{} (rate({name}{class}[$__rate_interval]))", by(""));
            vec![(rate, legend("", labels))]
        }
        "histogram" => [("0.5", "p50 "), ("0.99", "p99 ")]
            .map(|(quantile, title)| {
                let rate = format!("rate({name}_bucket{class}[$__rate_interval])");
                let sum = format!("sum{} ({rate})", by("le"));
                (format!("histogram_quantile({quantile}, {sum})"), legend(title, labels))
            })
            .into(),
        _ => {
            let words: Vec<&str> = ["instance"].into_iter().chain(labels.iter().copied()).collect();
            let age = if name.ends_with("_timestamp_seconds") { "time() - " } else { "" };
            vec![(format!("{age}{name}{class}"), legend("", &words))]
        }
    };
    let unit = match metric.kind {
        "counter" => "cps",
        _ if name.ends_with("_seconds") => "s",
        _ => "short",
    };
    let targets: Vec<Value> = queries
        .into_iter()
        .zip(["A", "B"])
        .map(|((expr, legend), id)| json!({"refId": id, "expr": expr, "legendFormat": legend}))
        .collect();
    json!({
        "type": "timeseries",
        "title": name,
        "datasource": source(),
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "targets": targets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_what_the_docs_say() {
        let there = read(DASHBOARD).expect("the dashboard");
        let wanted = dashboard().expect("the tables are good");
        assert_eq!(there, wanted, "run `cargo xtask grafana`");
    }

    /// A metric that no table has would be missing on the dashboard.
    #[test]
    fn every_metric_of_the_code_is_in_the_docs() {
        let docs = read(METRICS).expect("the docs");
        let metrics = metrics(&docs).expect("the tables are good");
        let mut count = 0;
        for file in
            ["crates/holdline/src/metrics/names.rs", "crates/cli/src/verbs/run/metrics_file.rs"]
        {
            let source = read(file).expect("the source");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for name in source.split('"').filter(|text| text.starts_with("holdline_")) {
                assert!(metrics.iter().any(|metric| metric.name == name), "{file}: {name}");
                count += 1;
            }
        }
        assert!(count > 20, "the names moved: {count}");
    }

    #[test]
    fn a_table_is_read_and_a_bad_row_refused() {
        let docs = "## One\n| name | kind | labels |\n|---|---|---|\n\
            | `a_total`, `b_total` | counter | `x`, `y`: `1`, `2` |\n| `c` | gauge | |\n\n\
            | name | meaning |\n|---|---|\n| `d` | no metric |\n";
        let read = metrics(docs).expect("good");
        let names: Vec<&str> = read.iter().map(|metric| metric.name).collect();
        assert_eq!(names, ["a_total", "b_total", "c"]);
        assert_eq!((read[1].section, &read[1].labels[..]), ("One", &["x", "y"][..]));
        for bad in [docs.replace("gauge", "meter"), docs.replace("| `c` |", "| `c` | more |")] {
            assert!(metrics(&bad).is_err(), "{bad}");
        }
        assert!(metrics("nothing").is_err());
    }

    #[test]
    fn a_panel_has_the_query_of_its_kind() {
        let query = |kind, labels: &[&'static str]| {
            let metric = Metric { section: "", name: "a", kind, labels: labels.to_vec() };
            panel(&metric, 0, 0)["targets"][0]["expr"].as_str().expect("a query").to_owned()
        };
        assert_eq!(query("counter", &["x"]), "sum by (x) (rate(a[$__rate_interval]))");
        assert_eq!(query("gauge", &["class"]), "a{class=~\"$class\"}");
        let quantile = "histogram_quantile(0.5, sum by (le) (rate(a_bucket[$__rate_interval])))";
        assert_eq!(query("histogram", &[]), quantile);
    }
}
