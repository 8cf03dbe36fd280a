//! A process that takes locks by another library, controlled by lines of text.

use std::collections::VecDeque;
use std::process::Stdio;

use holdline_core::{AcquireReply, Purpose, RenewReply};
use holdline_services::ZooKeeper;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{Contender, LONG, contender, engine, nodes, until};

pub(crate) struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Answers that came before that of an unlock: each contender of the peer is a thread.
    early: VecDeque<String>,
}

impl Peer {
    pub(crate) fn start(program: &mut Command) -> Peer {
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = program.spawn().expect("its interpreter (`./check` names the package)");
        let requests = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Peer { child, requests, answers, early: VecDeque::new() }
    }

    pub(crate) async fn ask(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.requests.write_all(line.as_bytes()).await.expect("it runs");
    }

    pub(crate) async fn expect(&mut self, wanted: &str) {
        let answer = match self.early.pop_front() {
            Some(early) => early,
            None => self.answer().await,
        };
        assert_eq!(answer, wanted);
    }

    async fn answer(&mut self) -> String {
        let line = timeout(LONG, self.answers.next_line()).await.expect("an answer in time");
        line.expect("it runs").expect("an answer")
    }

    /// Lets it release what it holds under this id. The next contender may answer first.
    pub(crate) async fn unlock(&mut self, id: &str) {
        self.ask(&format!("unlock {id}")).await;
        let unlocked = format!("unlocked {id}");
        loop {
            match self.answer().await {
                answer if answer == unlocked => return,
                other => self.early.push_back(other),
            }
        }
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }
}

/// Waits until a contender is first in the queue, and asks for its grant.
pub(crate) async fn is_handed(contender: &mut Contender) {
    until("it is handed the name", async || {
        matches!(contender.renew(Purpose::Wait).await, Ok(RenewReply::Held { .. }))
    })
    .await;
    contender.take().await;
}

/// Alternates between Holdline and the other library: each waits for the one before.
pub(crate) async fn take_turns(server: &ZooKeeper, url: &str, peer: &mut Peer, kind: &str) {
    let engine = engine(url).await;
    let path = format!("/holdline/{kind}");
    let mut first = contender(&engine, kind);
    let mut last_token = first.take().await;
    let mut ours = Vec::new();
    for number in 0..4 {
        peer.ask(&format!("{kind} {number} {path}")).await;
        let expected = 2 * number + 2;
        until("the other library's is in the queue", async || {
            nodes(server, &path).await.len() == expected
        })
        .await;
        let mut one = contender(&engine, kind);
        one.queue().await;
        ours.push(one);
    }
    first.let_go().await;
    for (number, mut one) in ours.into_iter().enumerate() {
        peer.expect(&format!("held {number}")).await;
        assert!(matches!(one.ask().await, Ok(AcquireReply::Queued { .. })), "{number}");
        peer.unlock(&number.to_string()).await;
        is_handed(&mut one).await;
        let token = one.take().await;
        assert!(token > last_token, "{token} after {last_token}");
        last_token = token;
        one.let_go().await;
    }
    until("nothing is left", async || nodes(server, &path).await.is_empty()).await;
}
