//! A batch of renewals. It is sent in parts, of which each is one call, and what is wrong with a
//! line is answered without asking.

use holdline_core::{Capabilities, LockError, Mode, Purpose, RenewReply, RenewRequest};

use crate::engine::about;
use crate::error::protocol;

/// How many lines one call renews.
pub(crate) const MOST_LINES: usize = 128;

/// The lines of one call, and what is wrong with those that are not sent.
pub(crate) struct Part<'a> {
    lines: Vec<(&'a RenewRequest, Result<(), LockError>)>,
}

/// Takes a batch apart.
pub(crate) fn parts<'a>(
    batch: &'a [RenewRequest],
    capabilities: &'a Capabilities,
) -> impl Iterator<Item = Part<'a>> {
    let check = |line: &RenewRequest| match line.purpose {
        Purpose::Keep(hold) => capabilities.check(Mode::Exclusive, hold),
        Purpose::Wait => Ok(()),
    };
    batch
        .chunks(MOST_LINES)
        .map(move |part| Part { lines: part.iter().map(|line| (line, check(line))).collect() })
}

impl<'a> Part<'a> {
    /// The lines that are sent; there may be none.
    pub(crate) fn good(&self) -> Vec<&'a RenewRequest> {
        let good = self.lines.iter().filter(|(_, checked)| checked.is_ok());
        good.map(|(line, _)| *line).collect()
    }

    /// Answers all lines, by the replies to those that were sent.
    pub(crate) fn answered(
        self,
        replies: Result<Vec<Result<RenewReply, LockError>>, LockError>,
    ) -> impl Iterator<Item = (&'a RenewRequest, Result<RenewReply, LockError>)> {
        let (replies, failure) = match replies {
            Ok(replies) => (replies, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut replies = replies.into_iter();
        let mut next = move || {
            let missing = || protocol("a line of the batch was not answered");
            replies.next().unwrap_or_else(|| Err(failure.clone().unwrap_or_else(missing)))
        };
        self.lines.into_iter().map(move |(line, checked)| {
            let reply = checked.and_then(|()| next());
            (line, about(reply, &line.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::{Certainty, ClientId, ErrorKind, Hold, LeaseId, LockName};

    use super::*;
    use crate::error::unavailable;

    fn line(number: u8, hours: u64) -> RenewRequest {
        RenewRequest {
            name: LockName::new(format!("n{number}")).expect("a good name"),
            lease_id: LeaseId::from_bytes([number; 16]),
            client: ClientId::from_u64(1),
            purpose: Purpose::Keep(Hold::Leased(Duration::from_secs(hours * 3600))),
        }
    }

    fn told(reply: &Result<RenewReply, LockError>) -> String {
        match reply {
            Ok(RenewReply::Renewed { left }) => format!("{}", left.unwrap_or_default().as_secs()),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.name().map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn renewed(seconds: u64) -> Result<RenewReply, LockError> {
        Ok(RenewReply::Renewed { left: Some(Duration::from_secs(seconds)) })
    }

    #[test]
    fn each_line_has_its_own_answer_and_a_bad_one_is_not_sent() {
        let capabilities = Capabilities::reference("redis", "test");
        let batch = [line(1, 1), line(2, 10_000), line(3, 1)];
        let part = parts(&batch, &capabilities).next().expect("one part");
        let sent: Vec<_> = part.good().iter().map(|line| line.name.to_string()).collect();
        assert_eq!(sent, ["n1", "n3"]);
        let answers = part.answered(Ok(vec![renewed(7), renewed(8)]));
        assert_eq!(answers.map(|(_, reply)| told(&reply)).collect::<Vec<_>>(), ["7", "n2", "8"]);
    }

    #[test]
    fn a_failure_is_told_of_every_line_that_was_sent_and_what_is_missing_is_no_success() {
        let capabilities = Capabilities::reference("redis", "test");
        let batch = [line(1, 1), line(2, 10_000), line(3, 1)];
        let part = || parts(&batch, &capabilities).next().expect("one part");
        let failed = part().answered(Err(unavailable("gone", Certainty::Unknown)));
        let kinds: Vec<_> = failed.map(|(_, reply)| reply.expect_err("failed")).collect();
        assert!(matches!(kinds[0].kind(), ErrorKind::Unavailable { .. }));
        assert!(matches!(kinds[1].kind(), ErrorKind::Invalid { .. }));
        assert!(matches!(kinds[2].kind(), ErrorKind::Unavailable { .. }));
        let missing = part().answered(Ok(vec![renewed(7)])).last().expect("three lines").1;
        assert!(matches!(missing.expect_err("none").kind(), ErrorKind::Protocol { .. }));
    }

    #[test]
    fn a_large_batch_is_taken_apart_in_order() {
        let capabilities = Capabilities::reference("redis", "test");
        let batch = vec![line(1, 1); 2 * MOST_LINES + 1];
        let lengths: Vec<_> = parts(&batch, &capabilities).map(|part| part.good().len()).collect();
        assert_eq!(lengths, [MOST_LINES, MOST_LINES, 1]);
        assert_eq!(parts(&[], &capabilities).count(), 0);
    }
}
