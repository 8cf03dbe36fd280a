//! What the command finds: environment, descriptors, signal masks, standard streams.

use super::*;

fn output_of(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// `program` with the environment that the wrapper is given, but run directly.
fn direct(world: &World, program: &str) -> Command {
    let like = world.command::<&str>(&[]);
    let mut command = Command::new(program);
    command.env_clear().envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(world.path(""));
    command
}

#[test]
fn only_our_own_variables_are_added() {
    let variables = |command: &mut Command| -> BTreeSet<String> {
        output_of(command.env("KEPT", "a=b\nc")).split('\0').map(Into::into).collect()
    };
    let world = World::new();
    let direct = variables(direct(&world, "env").arg("-0"));
    assert!(direct.contains("KEPT=a=b\nc"));
    for way in BOTH_WAYS {
        let found = variables(&mut wrapper(&world, way, &["env", "-0"]));
        assert_eq!(direct.difference(&found).next(), None);
        let added: Vec<&String> = found.difference(&direct).collect();
        assert!(added.len() >= 4, "{added:?}");
        assert!(added.iter().all(|variable| variable.starts_with("HOLDLINE_")), "{added:?}");
    }
}

/// Numbers and targets of all descriptors that are open in the process itself.
const DESCRIPTORS: &str = "
import os
for number in os.listdir('/proc/self/fd'):
    try:
        print(number, os.readlink('/proc/self/fd/' + number).split(':')[0])
    except FileNotFoundError:
        pass
";

#[test]
fn only_the_descriptor_of_a_live_grant_is_inherited() {
    let descriptors = |command: &mut Command| -> BTreeSet<String> {
        output_of(command.stderr(Stdio::piped())).lines().map(Into::into).collect()
    };
    let world = World::new();
    let direct = descriptors(direct(&world, "python3").args(["-c", DESCRIPTORS]));
    let command = ["python3", "-c", DESCRIPTORS];
    for way in [LEASED, &["--close"]] {
        assert_eq!(descriptors(&mut wrapper(&world, way, &command)), direct, "{way:?}");
    }
    let found = descriptors(&mut wrapper(&world, LIVE, &command));
    assert!(found.is_superset(&direct));
    let added: Vec<&String> = found.difference(&direct).collect();
    let store = world.path("store");
    let store = store.to_str().expect("text");
    assert_eq!(added.len(), 1, "{added:?}");
    assert!(added[0].split_once(' ').expect("two words").1.starts_with(store), "{added:?}");
}

/// Blocked, ignored and caught signals, without the two that the C library keeps for itself and
/// starts programs with in one way or another.
fn masks(status: &str) -> Vec<(String, u64)> {
    let own = 0b11 << 31;
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .map(|(name, mask)| (name.into(), u64::from_str_radix(mask, 16).expect("hex") & !own))
        .collect()
}

#[test]
fn signal_masks_are_those_of_the_caller() {
    let world = World::new();
    let look = "trap '' HUP USR2; exec \"$@\"";
    let show = ["grep", "^Sig[BIC]", "/proc/self/status"];
    let direct = masks(&output_of(direct(&world, "sh").args(["-c", look, "sh"]).args(show)));
    // SIGHUP is 1, SIGUSR2 is 12.
    assert!(direct.contains(&("SigIgn".to_owned(), 0x801)), "{direct:x?}");
    for way in BOTH_WAYS {
        let inner = wrapper(&world, way, &show);
        let under = &mut under(&world, "sh", &["-c", look, "sh"], &inner);
        assert_eq!(masks(&output_of(under)), direct);
    }
}

/// A program that executes the wrapper.
fn under(world: &World, program: &str, arguments: &[&str], wrapper: &Command) -> Command {
    let mut outer = direct(world, program);
    outer.args(arguments).arg(wrapper.get_program()).args(wrapper.get_args());
    outer
}

#[test]
fn a_blocked_sigchld_does_not_hide_the_end() {
    let block = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
";
    let world = World::new();
    let inner = wrapper(&world, LIVE, &["sh", "-c", "exit 5"]);
    let mut running = Running::start(&mut under(&world, "python3", &["-c", block], &inner));
    assert_eq!(running.code(), 5);
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let world = World::new();
    for way in BOTH_WAYS {
        let mut wrapper = wrapper(&world, way, &["yes"]);
        let mut child = wrapper.stdout(Stdio::piped()).spawn().expect("the wrapper starts");
        let mut some = [0; 4];
        child.stdout.take().expect("a pipe").read_exact(&mut some).expect("output");
        // The pipe is closed here: SIGPIPE.
        assert_eq!(child.wait().expect("it ends").code(), Some(141));
    }
}
