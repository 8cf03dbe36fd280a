//! The page Audit: what operators did by forms, by the API and elsewhere.

use holdline::audit::{AuditRecord, Operator};

use crate::ground::Ground;

/// `echo -n s3cret | sha256sum`.
const S3CRET: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";

#[tokio::test]
async fn an_action_by_a_form_is_recorded_once_and_shown_escaped() {
    let ground = Ground::start().await;
    let empty = ground.get("/dashboard/audit").await.body;
    assert!(empty.contains("There are no records") && empty.contains(">Audit</a>"), "{empty}");
    let token = ground.get("/dashboard/lock?name=deploy").await.form_token();
    let form = format!("form_token={token}&name=deploy&minutes=90&reason=%3Cb%3E+release");
    assert_eq!(ground.post("/dashboard/lock/freeze", "", &form).await.status, 303);
    let elsewhere = Operator { who: "ann\u{202e}".into(), from: "db1 (pid 7)".into() };
    let record = AuditRecord::new("fence_bump", &elsewhere);
    ground.client.admin().append_audit(record).await.expect("appended");
    let page = ground.get("/dashboard/audit").await.body;
    for shows in [
        "127.0.0.1",
        ">freeze<",
        "name=deploy",
        "&lt;b&gt; release",
        ">done<",
        "fence_bump",
        "ann\\u{202e}",
        "db1 (pid 7)",
        "the store",
    ] {
        assert!(page.contains(shows), "no {shows}: {page}");
    }
    assert_eq!(page.matches("<th scope=\"row\">").count(), 2, "{page}");
    let deploy = ground.get("/dashboard/audit?q=dep*").await.body;
    assert!(deploy.contains(">freeze<") && !deploy.contains("fence_bump"), "{deploy}");
    let other = ground.get("/dashboard/audit?q=other").await.body;
    assert!(other.contains("There are no records"), "{other}");
    assert_eq!(ground.get("/dashboard/audit?before=x").await.status, 422);
}

#[tokio::test]
async fn many_records_are_paged_to_older_ones() {
    let ground = Ground::start().await;
    for number in 0..101 {
        let operator = Operator { who: format!("user-{number:03}"), from: String::new() };
        let record = AuditRecord::new("fence_bump", &operator);
        ground.client.admin().append_audit(record).await.expect("appended");
    }
    let page = ground.get("/dashboard/audit").await.body;
    assert!(page.contains("user-100") && page.contains("user-001") && !page.contains("user-000"));
    let (_, rest) = page.split_once("/dashboard/audit?before=").expect("a link");
    let before = rest.split('"').next().expect("a value");
    let older = ground.get(&format!("/dashboard/audit?before={before}")).await.body;
    assert!(older.contains("user-000") && !older.contains("user-001"), "{older}");
}

#[tokio::test]
async fn the_page_is_for_those_who_may_operate_on_their_names() {
    let token = |rights: &str| {
        format!(
            "[[server.tokens]]\nname = \"ops\"\nsha256 = \"{S3CRET}\"\nrights = [{rights}]\n\
             prefixes = [\"ci/\"]\n"
        )
    };
    let good = "Authorization: Bearer s3cret\r\n";
    let ground = Ground::with(&token("\"view\", \"operate\"")).await;
    for name in ["ci/a", "prod"] {
        let record = AuditRecord::new("unfreeze", &Operator::default());
        let name = Some(holdline::LockName::new(name).expect("good"));
        ground.client.admin().append_audit(AuditRecord { name, ..record }).await.expect("appended");
    }
    let record = AuditRecord::new("fence_bump", &Operator::default());
    ground.client.admin().append_audit(record).await.expect("appended");
    let page = ground.get_with("/dashboard/audit", good).await.body;
    assert!(page.contains("ci/a"), "{page}");
    assert!(!page.contains("prod") && !page.contains("fence_bump"), "{page}");
    let viewer = Ground::with(&token("\"view\"")).await;
    assert_eq!(viewer.get_with("/dashboard/audit", good).await.status, 403);
}
