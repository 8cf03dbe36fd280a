//! Planted bugs, to prove that the worlds detect them. They are injected from outside: into the
//! scripts in transit, or between library and engine. One bug that only the library can have is
//! there behind its feature `_mutants`.
//!
//! The client decides which servers belong to a set (M2 and M5: members of the current
//! configuration count, each slot is seen or placed, a new server needs a sign) and with which
//! token a lease is healed (Q6). Those rules are in no script, so bugs in them are planted in the
//! models of the core instead: `data_loss`, `clients` and `tenures` of `quorum::tests`.

use super::run::{Scenario, ScenarioKind};
use super::stress::{self, Stress};
use crate::world::bugs::Mutation;

/// A planted bug: a rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    NoWriteBack,
    WriteBackWithoutCompare,
    RejoinWithoutWait,
    NoFloor,
    RecoverAnyEpisode,
    Unnoticed,
    HealedCountsAtOnce,
    HealTakesWhatIsTaken,
    IdAskedAgainAfterUndo,
    OldTokenBase,
    TokenStandsStill,
    ReleaseWithoutCompare,
    ValidityFromReply,
    AnyPass,
    AtLeastForExactly,
    FloorOfTheForgetful,
    Stamped,
    ForeignTakenForNewer,
    UndoOnAnotherConnection,
    FloorOfTheClockAlone,
    WaitByTheClock,
    DurableExcuse,
    OneStopsAll,
    TenureKept,
    RestKept,
    SurvivorForgotten,
}

impl Bug {
    /// Each of these is detected.
    pub(crate) const ALL: [Bug; 24] = [
        Bug::NoWriteBack,
        Bug::WriteBackWithoutCompare,
        Bug::RejoinWithoutWait,
        Bug::NoFloor,
        Bug::RecoverAnyEpisode,
        Bug::Unnoticed,
        Bug::HealTakesWhatIsTaken,
        Bug::IdAskedAgainAfterUndo,
        Bug::OldTokenBase,
        Bug::TokenStandsStill,
        Bug::ReleaseWithoutCompare,
        Bug::ValidityFromReply,
        Bug::AnyPass,
        Bug::AtLeastForExactly,
        Bug::FloorOfTheForgetful,
        Bug::Stamped,
        Bug::UndoOnAnotherConnection,
        Bug::FloorOfTheClockAlone,
        Bug::WaitByTheClock,
        Bug::DurableExcuse,
        Bug::OneStopsAll,
        Bug::TenureKept,
        Bug::RestKept,
        Bug::SurvivorForgotten,
    ];

    /// Bugs that no world detects, since another rule prevents their effect.
    ///
    /// Healed nodes count at once: the library accepts no renewal after its lease has ended by its
    /// own count. Before that no other client can have won a majority, so counting a healed node at
    /// once does no harm. The model has no library and detects it: there a renewal may succeed
    /// after another client held the lock.
    ///
    /// Sets are not distinguished by id: where no majority has its data, no node gets a slot in a
    /// set whose servers are elsewhere (M5 of the membership).
    pub(crate) const COVERED: [Bug; 2] = [Bug::HealedCountsAtOnce, Bug::ForeignTakenForNewer];

    /// Returns whether it is between library and engine, with other connections.
    pub(crate) fn is_between(self) -> bool {
        matches!(self, Bug::IdAskedAgainAfterUndo | Bug::UndoOnAnotherConnection)
    }

    /// Returns the first seed whose world is known to detect it.
    pub(crate) fn seen_at(self) -> u64 {
        match self {
            Bug::FloorOfTheClockAlone => 3,
            Bug::Stamped => 4,
            Bug::UndoOnAnotherConnection => 5,
            Bug::RejoinWithoutWait => 9,
            Bug::NoFloor | Bug::FloorOfTheForgetful => 11,
            Bug::AnyPass => 19,
            Bug::RestKept => 39,
            Bug::RecoverAnyEpisode => 10,
            _ => 1,
        }
    }

    /// Returns the stress that shows it, if random worlds show it too rarely.
    pub(crate) fn stress(self) -> Option<Stress> {
        Some(match self {
            Bug::ValidityFromReply => stress::SLOW_ANSWERS,
            Bug::NoFloor | Bug::FloorOfTheForgetful => stress::FORGETFUL_MIDDLE,
            Bug::RecoverAnyEpisode => stress::LATE_RECOVERY,
            Bug::Unnoticed => stress::OLD_COPIES,
            Bug::DurableExcuse => stress::SWITCHED_OFF,
            Bug::OneStopsAll => stress::ODD_SERVER,
            Bug::TenureKept => stress::DETOUR,
            Bug::RestKept => stress::SECOND_LOSS,
            Bug::SurvivorForgotten => stress::SILENT_SURVIVOR,
            Bug::WaitByTheClock => stress::CLOCK_OF_THE_WAIT,
            Bug::AnyPass => stress::REPLACED_MIDDLE,
            Bug::WriteBackWithoutCompare => stress::LEAPING_CLOCKS,
            Bug::HealTakesWhatIsTaken => stress::LATE_HEALING,
            Bug::FloorOfTheClockAlone => stress::ALL_FORGET,
            _ => return None,
        })
    }

    /// Returns the world of a seed with this bug.
    pub(crate) fn scenario(self, seed: u64) -> Scenario {
        Scenario { seed, stress: self.stress(), bug: Some(self) }
    }

    /// Returns the kind of world that shows it, if not all do.
    pub(crate) fn shows_in(self) -> Option<ScenarioKind> {
        matches!(self, Bug::Stamped | Bug::ForeignTakenForNewer).then_some(ScenarioKind::Rivals)
    }

    /// The replacements in the scripts.
    fn changes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Bug::NoWriteBack => {
                &[("call('SETRANGE', LOCK, AT_TOKEN, token)\ncount(LOCK, token, largest)\n", "")]
            }
            Bug::WriteBackWithoutCompare => &[(
                "sub(value, 1, ID_END) ~= ARGV[2] or is_healed(value) then return 'nothing' end",
                "sub(value, 1, ID_END) ~= ARGV[2] then return ARGV[3] end",
            )],
            Bug::HealedCountsAtOnce => &[(
                "  return { 'gone', value and 0 or 1 }",
                "  if not value and not mark_of(lock, id) then
    local since = stamp(call('TIME'))
    for line = 1, #KEYS - 1 do
      if KEYS[line + 1] == lock then
        call('SET', lock, id .. 'g-' .. ARGV[3 * line] .. string.rep('0', 15) .. '1' .. since
          .. '09000x l' .. ARGV[3 * line + 1] .. ';', 'PX', ARGV[3 * line + 1])
      end
    end
    return left_of(lock)
  end
  return { 'gone', value and 0 or 1 }",
            )],
            // A counter that expires after some seconds shows it soon.
            Bug::OldTokenBase => &[
                ("local base = last or largest", "local base = last or floor"),
                ("later(last or largest, floor) + 1", "later(last or floor, floor) + 1"),
                ("'PX', '86400000'", "'PX', '2000'"),
                ("local COUNTER_LIFE = '86400000'", "local COUNTER_LIFE = '2000'"),
            ],
            Bug::TokenStandsStill => &[
                ("local base = last or largest", "token = last or token local base = ''"),
                (
                    "math.max(later(last or largest, floor) + 1, ahead)",
                    "math.max(later(last or largest, floor), last and 0 or ahead)",
                ),
            ],
            Bug::ReleaseWithoutCompare => &[
                (
                    "local mine = value and sub(value, 1, ID_END) == id\n-- First",
                    "local mine = value\n-- First",
                ),
                (
                    "redis.pcall('GETRANGE', LOCK, '0', AT_WAITS) == ARGV[1]",
                    "sub(ARGV[1], STATE, STATE) == 'g'",
                ),
                ("local mine = value and sub(value, 1, 32) == id", "local mine = value"),
            ],
            _ => self.changes_of_sets(),
        }
    }

    /// The replacements that concern proofs, evidence and sets.
    fn changes_of_sets(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // It does harm when a healing arrives after its lease was over. It then takes a vote of
            // the next holder, which learns of that with its next renewal at the earliest. The
            // healed record ends with its lease, or with the release that follows it on the
            // connection, and a third client wins with this vote.
            Bug::HealTakesWhatIsTaken => {
                &[("if value or mark then return 0 end", "if mark then return 0 end")]
            }
            Bug::AnyPass => &[
                ("if node[1] == ARGV[1] then", "if node[1] then"),
                ("if kept[1] ~= proof then", "if not kept[1] then"),
                ("redis.pcall('HGET', NODE, 'p') == ARGV[1]", "redis.pcall('HGET', NODE, 'p')"),
            ],
            // A higher counter counts as the requested one.
            Bug::AtLeastForExactly => &[(
                "count(LOCK, token, largest)\nreturn token",
                "count(LOCK, token, largest)
local wanted = ARGV[5] and sub(ARGV[5], 1, 16) or ARGV[3]
return wanted < token and wanted or token",
            )],
            Bug::Stamped => &[(
                "node.g, node.c, node.s = 'proposed', configuration, set_stamp",
                "raise(node, since)\n  node.g, node.c, node.s = 'open', configuration, set_stamp",
            )],
            Bug::FloorOfTheClockAlone => &[("now + SKEW", "now")],
            // All sets have one id, so that the configuration of one counts as a change of the
            // other.
            Bug::ForeignTakenForNewer => &[(
                "node.g, node.c, node.s = 'proposed', configuration, set_stamp",
                "node.g = 'proposed'
  node.c, node.s = '2 ' .. NOBODY .. sub(configuration, 35), NOBODY .. sub(set_stamp, 33)",
            )],
            _ => self.changes_of_quarantines(),
        }
    }

    /// The replacements that concern lost data and quarantines.
    fn changes_of_quarantines(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Bug::RejoinWithoutWait => {
                &[("  wait(quarantine, by_time)\n  raise(", "  wait(1, by_time)\n  raise(")]
            }
            Bug::NoFloor => &[("  raise(node, floor)\n", "")],
            // A report of a wait is obeyed whatever its episode.
            Bug::RecoverAnyEpisode => &[(
                "if not node.r or not is_episode(episode) then return",
                "if not node.r then return",
            )],
            Bug::Unnoticed => &[(
                "elseif node.b == ARGV[1] and not was_replica then
  accepted = 0
",
                "elseif not same_run and node.m then
  node.m = ARGV[1]
",
            )],
            Bug::FloorOfTheForgetful => &[("  raise(node, floor)\n", "  raise(node, node.l)\n")],
            // The quarantine ends by the node's own clock.
            Bug::WaitByTheClock => &[
                ("#node.r < 11 and ", ""),
                (
                    "node.r, node.t = format('%.0f', micros)",
                    "node.r, node.t = format('%.0f', now + micros)",
                ),
                (
                    " or rest >= tonumber(node.r) then return false end
  if rest > 0 then
    node.r = format('%.0f', rest)
    return true
  end
",
                    " or tonumber(node.r) > now then return false end\n",
                ),
                (
                    "  return node.t == '1' and shorten(episode, 0)",
                    "  if node.r then node.r = '0' end
  return node.t == '1' and shorten(episode, 0)",
                ),
                (
                    "node.s or false, node.r or false,",
                    "node.s or false,
  node.r and format('%.0f', math.max(tonumber(node.r) - now, 0)) or false,",
                ),
            ],
            // Its own data says that it loses nothing, and counts as a proof.
            Bug::DurableExcuse => &[
                ("local NAMES = { 'm', ", "local NAMES = { 'd', 'm', "),
                (
                    "elseif node.b == ARGV[1] and not was_replica then
  accepted = 0
",
                    "elseif not same_run and node.d then
  node.m = ARGV[1]
",
                ),
                ("if accepted == 1 and ARGV[4]", "node.d = '1'\nif accepted == 1 and ARGV[4]"),
            ],
            // A server whose slot went to another one keeps its id and the rest of its quarantine.
            // It gets the slot back from a client that saw the other server by the same name.
            Bug::TenureKept => &[(
                "elseif before and before ~= member_since(configuration) then",
                "elseif false then",
            )],
            // A second loss of data leaves the rest of the first quarantine.
            Bug::RestKept => {
                &[("node.g, node.r, node.t = 'forgot', nil, nil", "node.g = 'forgot'")]
            }
            // Where no majority has kept its data, the floor is that of the clock alone.
            Bug::SurvivorForgotten => {
                &[("  raise(node, floor)\n", "  if by_time ~= '1' then raise(node, floor) end\n")]
            }
            _ => &[],
        }
    }

    /// Returns the mutation of the scripts, if it is there.
    pub(crate) fn mutation(self) -> Option<Mutation> {
        let changes = self.changes();
        (!changes.is_empty()).then(|| Mutation::new(changes.iter().copied()))
    }
}
