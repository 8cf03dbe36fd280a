//! The files of `ops/recipes`, which `docs/recipes` shows: each is checked by the program that it
//! is for, and what it starts is run. Only the jobs themselves are small programs of the test, and
//! so is `terraform`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::world::{CommandOutput, World};

const RECIPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops/recipes");

/// What the recipes run under their locks.
const JOBS: [&str; 8] = [
    "bin/report",
    "bin/backup",
    "bin/cleanup",
    "bin/scheduler",
    "bin/shop",
    "bin/terraform",
    "deploy.sh",
    "generate.sh",
];

/// A world with the jobs. Each prints its name and its arguments.
fn world() -> World {
    let world = World::new();
    fs::create_dir(world.path("bin")).expect("a directory");
    for job in JOBS {
        let path = world.path(job);
        let text = "#!/bin/sh\necho \"$(basename \"$0\") $*\"\n";
        fs::write(&path, text).expect("a job");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
    world
}

/// The programs of `cargo xtask interop prepare`.
fn tools() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory");
    let tools = target.join("interop/recipes");
    let made = tools.join("made-of.stamp").is_file();
    assert!(made, "{} is not there: run `cargo xtask interop prepare`", tools.display());
    tools.join("bin")
}

/// Runs a script in which the jobs, the tools and `$recipes` are found.
fn run(world: &World, script: &str) -> CommandOutput {
    let tools = tools();
    let script = format!(
        "set -eu; PATH=$PWD/bin:$PATH:{}; recipes={RECIPES}; export recipes\n{script}",
        tools.display()
    );
    world.shell(&script)
}

/// Asserts that a script ends well, and returns what it prints.
fn prints(world: &World, script: &str) -> String {
    let output = run(world, script);
    assert_eq!(output.code, 0, "{script}: {output:?}");
    output.stdout
}

fn recipe(name: &str) -> String {
    fs::read_to_string(format!("{RECIPES}/{name}")).expect("a recipe")
}

/// The values that a Python expression takes from the YAML of a recipe, one a line.
fn from_yaml(world: &World, name: &str, expression: &str) -> Vec<String> {
    let program = format!(
        "import shlex, sys, yaml\nfor d in yaml.safe_load_all(open(sys.argv[1])):\n  \
         print({expression})"
    );
    fs::write(world.path("look.py"), program).expect("a program");
    let python = tools().join("python");
    let text = prints(world, &format!("{} look.py $recipes/{name}", python.display()));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_line_of_the_crontab_is_a_schedule_and_a_command() {
    let world = world();
    let mut jobs = Vec::new();
    for line in recipe("crontab").lines().filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        if line.starts_with("HOLDLINE_URL=") {
            continue;
        }
        assert!(!line.contains('%'), "a line break for cron: {line}");
        let fields = if line.starts_with('@') { 1 } else { 5 };
        let (mut schedule, mut command) = (Vec::new(), line);
        for _ in 0..fields {
            let (field, rest) = command.split_once(char::is_whitespace).expect("a field");
            schedule.push(field);
            command = rest.trim_start();
        }
        if fields == 5 {
            let slot = schedule.join(" ");
            prints(&world, &format!("holdline run --once-per '{slot}' 'slot {slot}' -- true"));
        }
        jobs.push(prints(&world, &command.replace("/usr/local/bin/", "")));
        let again = prints(&world, &command.replace("/usr/local/bin/", ""));
        assert_eq!(again.is_empty(), line.contains("--once-per"), "{line}: {again}");
    }
    assert_eq!(jobs, ["report \n", "backup \n", "cleanup \n"]);
}

#[test]
fn the_units_are_valid_and_their_commands_run() {
    let world = world();
    let binary = env!("CARGO_BIN_EXE_holdline");
    for unit in ["report.service", "report.timer", "scheduler.service"] {
        let text = recipe(unit).replace("/usr/bin/holdline", binary);
        let text = text.replace("-- /usr/bin/", &format!("-- {}/", world.path("bin").display()));
        fs::write(world.path(unit), &text).expect("a unit");
        let Some(start) = text.lines().find_map(|line| line.strip_prefix("ExecStart=")) else {
            continue;
        };
        let start = start.replace("/var/lib/prometheus/", "").replace("elect", "elect --once");
        let job = unit.trim_end_matches(".service");
        assert_eq!(prints(&world, &start), format!("{job} \n"), "{start}");
    }
    let says = run(&world, "systemd-analyze verify ./*.service ./*.timer");
    assert_eq!((says.code, says.stderr.as_str()), (0, ""), "{says:?}");
    assert!(world.path("report.prom").is_file(), "the metrics of the run");
}

#[test]
fn the_manifests_are_valid_and_their_commands_run() {
    let world = world();
    prints(&world, "kubernetes-validate --strict $recipes/*.yaml");
    let pod = "p['template']['spec']";
    let of = |name: &str, containers: &str| {
        let spec = "(lambda p: ' '.join(shlex.quote(w) for w in ";
        let source =
            "(d['spec']['jobTemplate']['spec'] if 'jobTemplate' in d['spec'] else d['spec'])";
        let expression = format!("{spec}{pod}['{containers}'][0]['command']))({source})");
        from_yaml(&world, name, &expression).remove(0)
    };
    let report = of("cronjob.yaml", "containers");
    assert_eq!(prints(&world, &report), "report \n", "{report}");
    let scheduler = of("singleton.yaml", "containers").replace("elect", "elect --once");
    assert_eq!(prints(&world, &scheduler), "scheduler \n", "{scheduler}");
    let migrate = of("migrate-first.yaml", "initContainers");
    assert_eq!(prints(&world, &migrate), "shop migrate\n", "{migrate}");
}

#[test]
fn the_workflows_are_valid_and_their_scripts_run() {
    let world = world();
    let check = "check-jsonschema --builtin-schema";
    prints(&world, &format!("{check} vendor.github-workflows $recipes/github-deploy.yml"));
    prints(&world, &format!("{check} vendor.gitlab-ci $recipes/gitlab-deploy.yml"));
    let variables = "GITHUB_WORKFLOW=deploy GITHUB_RUN_ID=7 GITHUB_ACTOR=ada; CI_PIPELINE_ID=7; \
                     GITLAB_USER_LOGIN=ada\n";
    for (name, script) in [
        ("github-deploy.yml", "d['jobs']['deploy']['steps'][-1]['run']"),
        ("gitlab-deploy.yml", "d['deploy']['script'][0]"),
    ] {
        let script = from_yaml(&world, name, script).join("\n");
        assert_eq!(prints(&world, &format!("{variables}{script}")), "deploy.sh \n", "{script}");
    }
}

#[test]
fn the_playbook_releases_the_lock_also_if_the_deployment_fails() {
    let world = world();
    let play = format!(
        "cp $recipes/ansible-deploy.yml . && export ANSIBLE_HOME=$PWD/ansible HOME=$PWD USER=ada\n\
         ansible-playbook -i localhost, -c local -e ansible_python_interpreter={}/python \
         ansible-deploy.yml",
        tools().display()
    );
    prints(&world, &play);
    assert_eq!(world.run(&["who", "deploy/web"]).code, 1, "it is free");
    fs::write(world.path("deploy.sh"), "#!/bin/sh\nexit 1\n").expect("a job that fails");
    assert_ne!(run(&world, &play).code, 0);
    assert_eq!(world.run(&["who", "deploy/web"]).code, 1, "it is free");
    let token = prints(&world, "holdline run deploy/web -- sh -c 'echo $HOLDLINE_FENCING_TOKEN'");
    assert!(token.trim().parse::<u64>().expect("a token") > 2, "it was held twice before");
}

#[test]
fn make_and_the_wrapper_of_terraform_run_under_their_locks() {
    let world = world();
    let made = prints(&world, "make -s -f $recipes/Makefile deploy generate");
    assert_eq!(made, "deploy.sh \ngenerate.sh \n");
    fs::write(
        world.path("bin/terraform"),
        "#!/bin/sh\n[ \"$1\" = workspace ] && echo staging && exit\necho \"$HOLDLINE_NAME: $*\"\n",
    )
    .expect("a program");
    let directory = world.path("");
    let directory = directory.file_name().expect("a name").to_string_lossy();
    let applied = prints(&world, "$recipes/terraform-locked apply -auto-approve");
    assert_eq!(applied, format!("terraform/{directory}/staging: apply -auto-approve\n"));
}
