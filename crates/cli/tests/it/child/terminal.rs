//! The scenarios of `terminal.py`, each in a pseudo-terminal of its own.

use super::*;

fn scenario(name: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/child/terminal.py");
    let world = World::new();
    let output = Command::new("python3")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_holdline"))
        .arg(name)
        .current_dir(world.path(""))
        .env("HOLDLINE_URL", world.url())
        .stdin(Stdio::null())
        .output()
        .expect("python3 runs");
    assert!(
        output.status.success(),
        "{name}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

macro_rules! scenarios {
    ($($name:ident)*) => { $(#[test] fn $name() { scenario(stringify!($name)); })* };
}

scenarios! {
    foreground_from_the_first_instruction
    interrupt_arrives_once_at_the_terminal
    interrupt_arrives_once_in_a_pipeline
    interrupt_ends_command_and_wrapper
    interrupt_ends_a_script_around_us
    interrupt_ends_a_script_whose_command_took_the_terminal
    interrupt_ends_a_loop_in_bash
    interrupt_ends_the_wait
    stop_and_foreground
    stop_and_background
    stop_of_a_script_around_us
    stop_of_a_script_holds_for_a_command_that_ignores_it
    stop_while_waiting
    stop_while_connecting
    stop_at_the_start
    stop_at_the_start_outlasts_the_lease
    stops_while_the_command_is_started
    continue_arrives_once
    stop_freezes_those_who_ignore_it
    stop_without_a_shell_above
    pause_of_the_foreground_job_stops_us
    terminal_on_demand_in_a_pipeline
    continued_after_a_pause_from_outside
    resize_arrives_once
    modes_are_restored_after_a_kill
    nested_wrappers_stop_and_continue
}
