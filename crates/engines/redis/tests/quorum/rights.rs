//! The users of `docs/quorum.md` have exactly the rights that they need.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, Ending, Engine, Finding, Health, Operation, OperationReply, Purpose,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use holdline_redis::{QuorumAdmin, QuorumEngine, QuorumOptions, quorum_checkup};
use holdline_services::RedisConfig;

use crate::support::{HOLD, Nodes, PATIENCE, name, request, vouched};

const DOCUMENT: &str = include_str!("../../../../../docs/quorum.md");
const BARE: &str = "&dialect=plain&key_template=lock:{name}&fencing=off";
/// The start of a rule with a password; channels may be unrestricted.
const EASED: [&str; 3] = ["hello", "auth", "unsubscribe"];

/// Returns the document's rule for a user, from the name on.
fn rule(user: &str) -> String {
    let line = DOCUMENT.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
    format!("{user} {}", line.expect("the document's line"))
}

/// Servers with a user, and its options.
fn open(count: usize, user: &str, parameters: &str) -> (Nodes, QuorumOptions) {
    let nodes = Nodes::start(count, &RedisConfig::default().with_user(&rule(user)));
    let url = nodes.url().replace("redlock://", &format!("redlock://{user}:PASSWORD@"));
    let patience = PATIENCE.as_millis();
    let url = format!("{url}?command_timeout_ms={patience}{parameters}");
    let options = QuorumOptions::from_url(&url).expect("a good URL");
    (nodes, options)
}

/// Executes everything that holders and contenders do.
async fn locks(engine: &QuorumEngine) {
    let first = engine.try_acquire(&request(1)).await;
    assert!(matches!(first, Ok(AcquireReply::Granted { .. })), "{first:?}");
    let second = engine.try_acquire(&request(2)).await;
    assert!(matches!(second, Ok(AcquireReply::Busy { .. })), "{second:?}");
    let line = RenewRequest {
        name: name(),
        lease_id: request(1).lease_id,
        client: request(1).client,
        purpose: Purpose::Keep(HOLD),
    };
    let renewed = engine.renew(&[line]).await;
    assert!(matches!(renewed[..], [Ok(RenewReply::Renewed { .. })]), "{renewed:?}");
    assert!(engine.inspect(&name()).await.expect("a reply").is_held());
    for (for_good, released) in [(false, true), (true, false)] {
        let ending = Ending { for_good, hold: HOLD };
        let request = ReleaseRequest { name: name(), lease_id: request(1).lease_id, ending };
        let reply = engine.release(&request).await;
        assert_eq!(matches!(reply, Ok(ReleaseReply::Released { .. })), released, "{reply:?}");
    }
}

async fn connect(options: &QuorumOptions) -> QuorumEngine {
    QuorumEngine::connect(options, Arc::new(MachineClock)).await.expect("connected")
}

#[tokio::test]
async fn a_member_has_all_rights_that_a_lock_and_its_set_need() {
    let (_nodes, options) = open(3, "member", "");
    let admin = QuorumAdmin::new(&options, Arc::new(MachineClock)).expect("good options");
    let status = vouched(&admin).await;
    assert_eq!(status.votes, 3, "{status:?}");
    let engine = connect(&options).await;
    locks(&engine).await;
    for (id, now) in [(3, false), (4, true)] {
        let reply = engine.try_acquire(&request(id)).await;
        let Ok(AcquireReply::Granted { token, .. }) = reply else { panic!("{reply:?}") };
        let revoke = Operation::Revoke { name: name(), token, reason: "enough".to_owned(), now };
        let revoked = engine.operate(&revoke).await.expect("a reply");
        assert!(!matches!(revoked, OperationReply::NothingThere), "{revoked:?}");
        let ending = Ending { for_good: true, hold: HOLD };
        let lease_id = request(id).lease_id;
        engine.release(&ReleaseRequest { name: name(), lease_id, ending }).await.expect("a reply");
        let raised = engine.operate(&Operation::RaiseFence { to: token }).await;
        assert!(matches!(raised, Ok(OperationReply::Done)), "{raised:?}");
    }
}

#[tokio::test]
async fn a_user_without_tokens_has_all_rights_that_a_lock_needs() {
    let (_nodes, options) = open(3, "bare", BARE);
    locks(&connect(&options).await).await;
}

/// Returns the findings of doctor for a user with missing rights.
async fn lacking(options: &QuorumOptions) -> Vec<Finding> {
    let found = quorum_checkup(options, Arc::new(MachineClock)).await.expect("good options");
    let matters = |one: &Finding| match one.check() {
        "votes" => true,
        "rights" | "servers" => one.health() == Health::Error,
        _ => false,
    };
    found.findings().iter().filter(|one| matters(one)).cloned().collect()
}

/// Doctor, which asks the server for the rights of a user, reports each right that is removed.
#[tokio::test]
async fn no_user_has_an_unneeded_right() {
    for (user, parameters) in [("member", ""), ("bare", BARE)] {
        let (nodes, options) = open(1, user, parameters);
        if user == "member" {
            let admin = QuorumAdmin::new(&options, Arc::new(MachineClock)).expect("good options");
            vouched(&admin).await;
        }
        let say = |words: &[&str]| nodes.servers[0].raw().send(words).expect("an answer");
        // The commands of doctor itself.
        say(&["ACL", "SETUSER", user, "+acl|whoami", "+acl|dryrun"]);
        let found = lacking(&options).await;
        assert!(found.is_empty(), "{user} has all: {found:?}");
        let rule = rule(user);
        let rights = rule.split(' ').filter_map(|word| word.strip_prefix('+'));
        for right in rights.filter(|right| !EASED.contains(right)) {
            say(&["ACL", "SETUSER", user, &format!("-{right}")]);
            assert!(!lacking(&options).await.is_empty(), "{user} needs no {right}");
            say(&["ACL", "SETUSER", user, &format!("+{right}")]);
        }
    }
}
