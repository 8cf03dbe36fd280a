//! Judges a run.
//!
//! Invariant J1: a promise whose assumption a fault broke is reported and not judged. For
//! exclusion: the only node lost data, a deciding clock was stepped, or a session was ended by an
//! operator. For tokens: the only node lost data and its clock was stepped.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::LockName;

use crate::checker::{Rules, Violation, ViolationKind, check};
use crate::register::{Lost, Stale};
use crate::stage::TortureState;
use crate::{Assumed, Fault, Plan, Report, Verdict};

/// How many witnesses of one kind are reported.
const WITNESSES: usize = 5;

/// What was found at the end.
pub(crate) struct Ending {
    /// How many workers did not end.
    pub(crate) stuck: usize,
    /// What is left in the store.
    pub(crate) orphans: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) lease: Duration,
    pub(crate) engine: &'static str,
}

/// Judges what was seen.
pub(crate) fn judge(
    plan: &Plan,
    state: TortureState,
    names: &[LockName],
    ending: &Ending,
) -> Report {
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    for note in &state.notes {
        *faults.entry(note.fault).or_default() += 1;
    }
    let mut assumed = assumed(&faults, ending.nodes);
    assumed.exclusion &= !plan.soft_exclusion;
    // Order is not judged: faults remove queue entries.
    let checked = check(&state.events, Rules::default());
    let mut reasons: Vec<String> = state.failures.clone();
    let violations = checked.unwrap_or_else(|error| {
        reasons.push(format!("the history makes no sense: {error}"));
        Vec::new()
    });
    let found =
        |kinds: &[ViolationKind]| violations.iter().filter(|it| kinds.contains(&it.kind)).count();
    let written = written(&state, names);
    let tokens = [ViolationKind::TokenOrder, ViolationKind::DuplicateToken];
    let stuck = ending.stuck + found(&[ViolationKind::Hung]);
    let mut report = Report {
        engine: ending.engine,
        seed: plan.seed,
        lease: ending.lease,
        acquisitions: state.acquisitions,
        faults,
        valid_overlaps: found(&[ViolationKind::Overlap]),
        stale_refused: state.registers.iter().map(|register| register.refused).sum(),
        stale_accepted: written.stale.len().max(found(&[ViolationKind::StaleWrite])),
        token_regressions: found(&tokens),
        fenced_lost: written.fenced_lost.len(),
        unfenced_lost: state.registers.iter().map(|it| it.unfenced().lost().len()).sum(),
        orphans: ending.orphans.len().max(usize::from(state.left > 0)),
        hung: state.hung.len().max(stuck),
        resurrected: found(&[ViolationKind::Resurrected]),
        errors: state.errors,
        unexpected: state.unexpected,
        assumed,
        verdict: Verdict::Kept,
        witnesses: Vec::new(),
        reasons,
        events: state.events,
        notes: state.notes,
    };
    report.witnesses = witnesses(&report, &violations, written, &state.hung, ending);
    explain(plan, &mut report);
    report
}

fn assumed(faults: &BTreeMap<Fault, u64>, nodes: usize) -> Assumed {
    let forgot = nodes == 1 && faults.keys().any(|fault| fault.forgets());
    let stepped = faults.contains_key(&Fault::ClockStep);
    let ended = faults.contains_key(&Fault::EndSession);
    Assumed { exclusion: !forgot && !stepped && !ended, tokens: !(forgot && stepped) }
}

/// What the register that checks tokens shows.
struct Written {
    stale: Vec<String>,
    fenced_lost: Vec<String>,
}

fn written(state: &TortureState, names: &[LockName]) -> Written {
    let registers = || names.iter().zip(&state.registers);
    let stale = registers().flat_map(|(name, register)| {
        register.stale.iter().map(move |stale| stale_witness(name, stale))
    });
    let lost = registers().flat_map(|(name, register)| {
        register.fenced_lost().into_iter().map(move |lost| lost_witness(name, lost))
    });
    Written { stale: stale.collect(), fenced_lost: lost.collect() }
}

fn stale_witness(name: &LockName, stale: &Stale) -> String {
    let Stale { at, writer, reader } = stale;
    let ms = |moment: holdline_core::Moment| moment.as_nanos() as f64 / 1e6;
    format!(
        "{name}: a late write was accepted at {:.3} ms\n    \
         attempt {} was granted token {} by {:.3} ms\n    \
         attempt {} asked at {:.3} ms, was granted token {}, and had read",
        ms(*at),
        writer.attempt,
        writer.token,
        ms(writer.granted),
        reader.attempt,
        ms(reader.called),
        reader.token,
    )
}

fn lost_witness(name: &LockName, lost: Lost) -> String {
    format!(
        "{name}: what attempt {} wrote at {:.3} ms is lost: attempt {} wrote over it unseen",
        lost.by,
        lost.at.as_nanos() as f64 / 1e6,
        lost.over
    )
}

/// Puts together who shows what is broken.
fn witnesses(
    report: &Report,
    violations: &[Violation],
    written: Written,
    hung: &[String],
    ending: &Ending,
) -> Vec<String> {
    let Assumed { exclusion, tokens } = report.assumed;
    let judged = violations.iter().filter(|violation| match violation.kind {
        ViolationKind::Overlap => exclusion,
        ViolationKind::TokenOrder | ViolationKind::DuplicateToken | ViolationKind::StaleWrite => {
            tokens
        }
        _ => true,
    });
    let mut found: Vec<String> = judged.map(ToString::to_string).collect();
    if tokens {
        found.extend(written.stale.into_iter().take(WITNESSES));
        found.extend(written.fenced_lost.into_iter().take(WITNESSES));
    }
    found.extend(ending.orphans.iter().cloned());
    if ending.orphans.is_empty() && report.orphans > 0 {
        found.push("a worker could not give back all that it held".to_owned());
    }
    found.extend(hung.iter().take(WITNESSES).cloned());
    if ending.stuck > 0 {
        found.push(format!("{} workers did not end", ending.stuck));
    }
    found.extend(report.unexpected.iter().map(|message| format!("no fault explains: {message}")));
    found
}

/// Decides, and says why a run proves nothing.
fn explain(plan: &Plan, report: &mut Report) {
    let wanted = |fault: &Fault| !report.faults.contains_key(fault);
    if report.acquisitions == 0 {
        report.reasons.push("no request was granted".to_owned());
    }
    if !plan.faults.is_empty() && report.faults.is_empty() {
        report.reasons.push("no fault came".to_owned());
    }
    if plan.faults.contains(&Fault::PauseHolder) && report.unfenced_lost == 0 {
        let reply = if wanted(&Fault::PauseHolder) {
            "no holder was stopped"
        } else {
            "no late \
            write did harm"
        };
        report.reasons.push(format!(
            "the control lost nothing: {reply}, so what fencing has prevented is not shown"
        ));
    }
    report.verdict = match (report.witnesses.is_empty(), report.reasons.is_empty()) {
        (false, _) => Verdict::Broken,
        (true, false) => Verdict::ProvesNothing,
        (true, true) => Verdict::Kept,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    #[test]
    fn a_run_in_which_nothing_happened_proves_nothing() {
        let worker = Program { path: "worker".into(), arguments: Vec::new() };
        let mut plan = Plan::new("memory:", worker, 1);
        let report = |plan: &Plan| {
            let stuck = 0;
            let orphans = Vec::new();
            let lease = Duration::from_secs(1);
            let ending = Ending { stuck, orphans, nodes: 1, lease, engine: "memory" };
            judge(plan, TortureState::default(), &[], &ending)
        };
        let idle = report(&plan);
        assert_eq!(idle.verdict, Verdict::ProvesNothing);
        for why in ["no request was granted", "no fault came", "the control lost nothing"] {
            assert!(idle.reasons.iter().any(|reply| reply.contains(why)), "{idle}");
        }
        // Without holders that are stopped there is no control to be hurt.
        plan.faults = vec![Fault::Kill];
        assert!(!report(&plan).to_string().contains("the control"));
    }

    #[test]
    fn promises_whose_assumptions_faults_broke_are_not_judged() {
        let of = |faults: &[Fault], nodes| {
            let faults = faults.iter().map(|fault| (*fault, 1)).collect();
            let Assumed { exclusion, tokens } = assumed(&faults, nodes);
            (exclusion, tokens)
        };
        assert_eq!(of(&[Fault::PauseHolder, Fault::Restart, Fault::ClockRate], 1), (true, true));
        assert_eq!(of(&[Fault::FlushAll], 1), (false, true));
        assert_eq!(of(&[Fault::RestartEmpty, Fault::ClockStep], 1), (false, false));
        assert_eq!(of(&[Fault::RestartEmpty, Fault::FlushAll], 5), (true, true));
        assert_eq!(of(&[Fault::RestartEmpty, Fault::ClockStep], 5), (false, true));
    }
}
