//! `run --metrics-file`: one whole file for each run, whatever became of it.

use crate::world::World;

fn value(text: &str, series: &str) -> f64 {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(series)).collect();
    assert_eq!(lines.len(), 1, "{series}: {text}");
    lines[0].rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn each_run_replaces_the_metrics_of_the_one_before() {
    let world = World::new();
    let file = world.path("nightly.prom");
    let flags = ["run", "--metrics-file", "nightly.prom", "--class", "nightly"];
    let labels = r#"{class="nightly",engine="local""#;
    let outcome = |name: &str| format!("holdline_run_outcome{labels},outcome=\"{name}\"}}");
    let run = |rest: &[&str]| {
        let output = world.run(&[&flags[..], rest].concat());
        (output.code, std::fs::read_to_string(&file).expect("written"))
    };
    let (code, text) = run(&["a", "--", "sh", "-c", "exit 3"]);
    assert_eq!(code, 3);
    assert_eq!(value(&text, &format!("holdline_run_exit_code{labels}")), 3.0);
    assert_eq!(value(&text, &format!("holdline_run_fencing_token{labels}")), 1.0);
    assert!(value(&text, &format!("holdline_run_hold_seconds{labels}")) >= 0.0);
    assert!(value(&text, &format!("holdline_run_end_timestamp_seconds{labels}")) > 1.6e9);
    assert_eq!(value(&text, &outcome("finished")), 1.0);

    let holder = world.hold(&["a"]);
    let (code, text) = run(&["a", "--try", "--", "true"]);
    assert_eq!(code, 75);
    assert_eq!(value(&text, &outcome("busy")), 1.0);
    assert_eq!(value(&text, &outcome("finished")), 0.0);
    assert!(!text.contains("fencing_token"), "{text}");
    drop(holder);
    let here = std::fs::read_dir(world.path(".")).expect("a folder");
    let names = here.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    let left: Vec<String> = names.filter(|name| name.contains("prom")).collect();
    assert_eq!(left, ["nightly.prom"], "nothing is left beside it");
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let world = World::new();
    for (line, says) in [
        (
            &["--metrics-file", "no/such/x.prom", "--class", "c"][..],
            "--metrics-file no/such/x.prom",
        ),
        (&["--metrics-file", ".", "--class", "c"], "--metrics-file ."),
        (&["--metrics-file", "x.prom"], "--class"),
        (&["--class", "c"], "--metrics-file"),
        (&["--metrics-file", "x.prom", "--class", ""], "name the job"),
    ] {
        let output = world.run(&[&["run"], line, &["a", "--", "echo", "ran"]].concat());
        assert_eq!(output.code, 64, "{line:?}: {output:?}");
        assert!(output.stderr.contains(says) && output.stdout.is_empty(), "{says}: {output:?}");
    }
}
