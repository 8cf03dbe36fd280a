//! Rules to leave out, to prove that the worlds find it. They are left out from outside: in the
//! scripts as they travel, or between library and engine; the one that only the library itself can
//! have stands there behind its feature `planted`.
//!
//! Who belongs to a set (M2 and M5: members of the current configuration count, each slot is seen
//! or placed, a newcomer needs a sign) and with which token a lease is healed (Q6) is decided by
//! the client and is in no script, so these rules are left out in the models of the core instead:
//! `quorum::tests::forgetting` and `quorum::tests::clients`.

use super::heat::{self, Heat};
use super::run::{Kind, Scene};
use crate::world::planted::Mutation;

/// A rule that is left out.
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
}

impl Bug {
    /// Each of these is found.
    pub(crate) const ALL: [Bug; 20] = [
        Bug::NoWriteBack,
        Bug::WriteBackWithoutCompare,
        Bug::RejoinWithoutWait,
        Bug::NoFloor,
        Bug::RecoverAnyEpisode,
        Bug::Unnoticed,
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
    ];

    /// What no world shows, since another rule covers for it.
    ///
    /// That healed nodes count only from the next renewal: the library hears no renewal once the
    /// lease is over by its own count, and brings nothing back. While it is not over, nobody else
    /// can have been had by a majority, so it does no harm that a node which was free counts at
    /// once. The model, which has no library, finds it: there a renewal may be good after somebody
    /// else came and went.
    ///
    /// That another set is told apart by its name: where no majority remembers, nobody takes a
    /// place in a set whose servers are elsewhere (M5 of the membership), whatever its name.
    pub(crate) const COVERED: [Bug; 2] = [Bug::HealedCountsAtOnce, Bug::ForeignTakenForNewer];

    /// What is not searched for, and should be: nobody has shown that another rule covers for it.
    ///
    /// That healing leaves a name that is taken: worlds from seed 367 on showed it, until leases
    /// were healed as soon as a server votes. No world that shows it since is known.
    pub(crate) const UNSEEN: [Bug; 1] = [Bug::HealTakesWhatIsTaken];

    /// Tells whether it stands between library and engine, with other connections.
    pub(crate) fn is_between(self) -> bool {
        matches!(self, Bug::IdAskedAgainAfterUndo | Bug::UndoOnAnotherConnection)
    }

    /// Returns the first seed whose world was seen to miss it.
    pub(crate) fn seen_at(self) -> u64 {
        match self {
            Bug::ValidityFromReply | Bug::WaitByTheClock | Bug::DurableExcuse => 2,
            Bug::Unnoticed => 3,
            Bug::NoWriteBack => 4,
            Bug::IdAskedAgainAfterUndo | Bug::AtLeastForExactly => 5,
            Bug::NoFloor | Bug::FloorOfTheForgetful => 6,
            Bug::RejoinWithoutWait | Bug::AnyPass => 7,
            Bug::UndoOnAnotherConnection => 16,
            Bug::FloorOfTheClockAlone => 23,
            Bug::Stamped => 72,
            Bug::RecoverAnyEpisode => 86,
            Bug::HealTakesWhatIsTaken => 367,
            _ => 1,
        }
    }

    /// Returns what makes a world hot for it, if it shows too seldom in those that are drawn.
    pub(crate) fn heat(self) -> Option<Heat> {
        Some(match self {
            Bug::ValidityFromReply => heat::SLOW_ANSWERS,
            Bug::NoFloor | Bug::FloorOfTheForgetful => heat::FORGETFUL_MIDDLE,
            Bug::RecoverAnyEpisode => heat::LATE_RECOVERY,
            Bug::Unnoticed => heat::OLD_COPIES,
            Bug::DurableExcuse => heat::SWITCHED_OFF,
            Bug::OneStopsAll => heat::ODD_SERVER,
            Bug::WaitByTheClock => heat::CLOCK_OF_THE_WAIT,
            Bug::AnyPass => heat::REPLACED_MIDDLE,
            Bug::WriteBackWithoutCompare => heat::LEAPING_CLOCKS,
            Bug::HealTakesWhatIsTaken => heat::LATE_HEALING,
            Bug::FloorOfTheClockAlone => heat::ALL_FORGET,
            _ => return None,
        })
    }

    /// Returns the world of a seed in which it is left out.
    pub(crate) fn scene(self, seed: u64) -> Scene {
        Scene { seed, heat: self.heat(), bug: Some(self) }
    }

    /// Returns in which worlds alone it shows, if not in all.
    pub(crate) fn shows_in(self) -> Option<Kind> {
        matches!(self, Bug::Stamped | Bug::ForeignTakenForNewer).then_some(Kind::Rivals)
    }

    /// What to write in place of what in the scripts.
    fn changes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Bug::NoWriteBack => {
                &[("call('SETRANGE', LOCK, '67', token)\ncount(LOCK, token, largest)\n", "")]
            }
            Bug::WriteBackWithoutCompare => &[(
                "sub(value, 1, 32) ~= ARGV[2] or is_healed(value) then return 'nothing' end",
                "sub(value, 1, 32) ~= ARGV[2] then return ARGV[3] end",
            )],
            Bug::RejoinWithoutWait => &[(
                "  wait(quarantine, by_time)\n  return true",
                "  wait(0, by_time)\n  return true",
            )],
            Bug::NoFloor => &[("  raise(node, floor)\n", "")],
            Bug::RecoverAnyEpisode => &[(
                "if node.r ~= '0' or not is_episode(episode, told) then",
                "if node.g ~= 'forgot' then",
            )],
            Bug::Unnoticed => &[(
                "elseif node.m ~= ARGV[1] and node.b == ARGV[1] then
  accepted = 0
",
                "elseif node.m ~= ARGV[1] then
  node.m = ARGV[1]
",
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
            Bug::HealTakesWhatIsTaken => {
                &[("if value or mark then return 0 end", "if mark then return 0 end")]
            }
            // A counter that is forgotten on purpose after some seconds shows it soon.
            Bug::OldTokenBase => &[
                ("local base = last or largest", "local base = last or floor"),
                ("later(last or largest, floor) + 1", "later(last or floor, floor) + 1"),
                ("'PX', '86400000'", "'PX', '2000'"),
                ("local DAY, LONGEST, MEMORY = '86400000'", "local DAY, LONGEST, MEMORY = '2000'"),
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
                    "local mine = value and sub(value, 1, 32) == id\n-- First",
                    "local mine = value\n-- First",
                ),
                (
                    "redis.pcall('GETRANGE', LOCK, '0', '33') == ARGV[1]",
                    "sub(ARGV[1], 33, 33) == 'g'",
                ),
            ],
            _ => self.changes_of_sets(),
        }
    }

    /// The same for what concerns passes, proof and who belongs to a set.
    fn changes_of_sets(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Bug::AnyPass => &[
                ("if node[1] == ARGV[1] then", "if node[1] then"),
                ("if kept[1] ~= pass then", "if not kept[1] then"),
                ("redis.pcall('HGET', NODE, 'p') == ARGV[1]", "redis.pcall('HGET', NODE, 'p')"),
            ],
            // What stands higher counts as what was asked for.
            Bug::AtLeastForExactly => &[(
                "count(LOCK, token, largest)\nreturn token",
                "count(LOCK, token, largest)
local wanted = ARGV[5] and sub(ARGV[5], 1, 16) or ARGV[3]
return wanted < token and wanted or token",
            )],
            Bug::FloorOfTheForgetful => &[("  raise(node, floor)\n", "  raise(node, node.l)\n")],
            Bug::Stamped => &[(
                "node.g, node.c, node.s = 'proposed', configuration, told",
                "raise(node, since)\n  node.g, node.c, node.s = 'open', configuration, told",
            )],
            // The wait ends at a moment of the node's own clock.
            Bug::WaitByTheClock => &[
                ("#node.r < 11 and ", ""),
                (
                    "node.r, node.t = format('%.0f', micros)",
                    "node.r, node.t = format('%.0f', now + micros)",
                ),
                ("  if node.r ~= '0' or", "  if not node.r or tonumber(node.r) > now or"),
                (
                    "node.s or false, node.r or false,",
                    "node.s or false,
  node.r and format('%.0f', math.max(tonumber(node.r) - now, 0)) or false,",
                ),
            ],
            Bug::FloorOfTheClockAlone => &[("local SKEW = 1000000", "local SKEW = 0")],
            // Its memory says that it loses nothing, and vouches for itself.
            Bug::DurableExcuse => &[
                ("local NAMES = { 'm', ", "local NAMES = { 'd', 'm', "),
                (
                    "elseif node.m ~= ARGV[1] and node.b == ARGV[1] then
  accepted = 0
",
                    "elseif node.m ~= ARGV[1] and node.d then
  node.m = ARGV[1]
",
                ),
                ("if accepted == 1 and ARGV[3]", "node.d = '1'\nif accepted == 1 and ARGV[3]"),
            ],
            // All sets have one name, so that what one has counts as a change of the other.
            Bug::ForeignTakenForNewer => &[(
                "node.g, node.c, node.s = 'proposed', configuration, told",
                "node.g = 'proposed'
  node.c, node.s = '1 ' .. NOBODY .. sub(configuration, 35), NOBODY .. sub(told, 33)",
            )],
            _ => &[],
        }
    }

    /// Tells whether it is in the scripts.
    pub(crate) fn mutation(self) -> Option<Mutation> {
        let changes = self.changes();
        (!changes.is_empty()).then(|| Mutation::new(changes.iter().copied()))
    }
}
