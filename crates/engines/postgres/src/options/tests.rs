//! URLs that are accepted, and the errors for bad ones.

use std::path::Path;

use super::*;

fn message_of(url: &str) -> String {
    PostgresOptions::from_url(url).expect_err("refused").to_string()
}

#[test]
fn a_url_is_read() {
    let options = PostgresOptions::from_url(
        "postgresql://an%20n:s%40e:c@[::1]:99/my%2Fdb?schema=locks&max_waiters=7&connect_timeout_ms=900",
    )
    .expect("a good URL");
    assert_eq!(options.address(), &Address::Tcp { host: "::1".to_owned(), port: 99 });
    assert_eq!((options.user(), options.database()), ("an n", "my/db"));
    assert_eq!(options.password().last().as_deref(), Some("s@e:c"));
    assert_eq!((options.schema(), options.max_waiters()), ("locks", 7));
    assert_eq!(options.connect_timeout(), Duration::from_millis(900));
    assert!(!format!("{options:?}").contains("s@e:c"));
}

#[test]
fn omitted_parameters_have_defaults() {
    let options = PostgresOptions::from_url("postgres://ann@db").expect("a good URL");
    assert_eq!(options.address(), &Address::Tcp { host: "db".to_owned(), port: 5432 });
    assert_eq!((options.database(), options.schema()), ("ann", "holdline"));
    assert!(options.password().last().is_none() && options.tls().is_none());
    for url in ["postgres://ann@/x?host=/run/pg", "postgres://ann@%2Frun%2Fpg/x"] {
        let options = PostgresOptions::from_url(url).expect("a good URL");
        assert_eq!(options.address().to_string(), "/run/pg/.s.PGSQL.5432", "{url}");
    }
}

#[test]
fn tls_is_on_or_off_and_nothing_between() {
    let tls = |parameters: &str| {
        let url = format!("postgres://ann@db/x?{parameters}");
        PostgresOptions::from_url(&url).map(|options| options.tls().cloned())
    };
    assert_eq!(tls("sslmode=disable").expect("good"), None);
    for (parameters, verification) in [
        ("sslmode=require&sslrootcert=/ca", Verification::Authority),
        ("sslmode=verify-ca&ca=/ca", Verification::Authority),
        ("ca=/ca&sslmode=verify-full", Verification::Full),
    ] {
        let files = tls(parameters).expect("good").expect("TLS");
        assert_eq!(files.ca.as_deref(), Some(Path::new("/ca")));
        assert_eq!(files.verification, verification, "{parameters}");
    }
    for (parameters, verification) in [
        ("sslmode=require", Verification::Off),
        ("sslmode=verify-full&sslrootcert=system", Verification::Full),
    ] {
        let files = tls(parameters).expect("good").expect("TLS");
        assert_eq!((files.ca, files.verification), (None, verification), "{parameters}");
    }
    for (parameters, says) in [
        ("sslmode=prefer", "clear text"),
        ("sslmode=allow", "clear text"),
        ("sslmode=on", "unknown"),
        ("ca=/ca", "need TLS"),
        ("sslmode=require&sslkey=/key", "both"),
        ("sslmode=require&cert=/c", "both"),
        ("sslmode=require&host=/run", "unix socket"),
    ] {
        let error = tls(parameters).expect_err("refused").to_string();
        assert!(error.contains(says), "{parameters}: {error}");
    }
}

#[test]
fn errors_about_urls_do_not_show_the_password() {
    for (url, says) in [
        ("mysql://ann:hers@db/x", "must begin with"),
        ("postgres://db/x", "names no user"),
        ("postgres://:hers@db/x", "names no user"),
        ("postgres://ann:hers@db:port/x", "port"),
        ("postgres://ann:hers@db:0/x", "port"),
        ("postgres://ann:hers@db:65536/x", "port"),
        ("postgres://ann:hers@a,,b/x", "between its commas"),
        ("postgres://ann:hers@a,b/x?port=1,2,3", "one for each"),
        ("postgres://ann:hers@a,b/x?hostaddr=127.0.0.1", "several hosts"),
        ("postgres://ann:hers@a/x?hostaddr=b", "no IP address"),
        ("postgres://ann:hers@a/x?target_session_attrs=standby", "need a primary"),
        ("postgres://ann:hers@a/x?channel_binding=require", "needs TLS"),
        ("postgres://ann:hers@a/x?service=s", "into the URL"),
        ("postgres://ann:hers@a/x?connect_timeout=0", "connect_timeout"),
        ("postgres://ann:hers@a/x?connect_timeout=s", "whole number"),
        ("postgres://ann:hers@::1/x", "brackets"),
        ("postgres://ann:hers@[::1/x", "`]`"),
        ("postgres://ann:hers@db/x?shema=a", "`schema`"),
        ("postgres://ann:hers@db/x?schema=a&schema=b", "twice"),
        ("postgres://ann:hers@db/x?schema=", "schema"),
        ("postgres://ann:hers@db/x?schema=pg_locks", "may not begin with `pg_`"),
        ("postgres://ann:hers@db/x?max_waiters=0", "max_waiters"),
        ("postgres://ann:hers@db/x?max_waiters=many", "whole number"),
        ("postgres://ann:hers@db/x?command_timeout_ms=5", "command_timeout"),
        ("postgres://ann:he?rs@db/x", "%3F"),
        ("postgres://ann:he%rs@db/x", "hex digits"),
        ("postgres://ann:hers@db/x?password_file=/no/where", "/no/where"),
    ] {
        let reply = message_of(url);
        assert!(reply.contains(says) && !reply.contains("hers"), "{url}: {reply}");
    }
}

#[test]
fn names_of_schemas_that_could_leave_a_text_are_refused() {
    for name in ["it's", "a$$b", "a\\b"] {
        let options = PostgresOptions::from_url("postgres://ann@db").expect("a good URL");
        let error = options.with_schema(name).validate().expect_err("refused").to_string();
        assert!(error.contains("schema"), "{error}");
    }
    assert!(message_of("postgres://ann@db?schema=a%27b").contains("schema"));
}

#[test]
fn several_hosts_have_a_port_each_or_one_for_all() {
    for (url, place) in [
        ("postgres://ann@a,b:2,[::1]:3/x", "a:5432,b:2,[::1]:3"),
        ("postgres://ann@a,b/x?port=7", "a:7,b:7"),
        ("postgres://ann@a,b/x?port=7,8", "a:7,b:8"),
        ("postgres://ann@/x?host=a,b", "a:5432,b:5432"),
        ("postgres://ann@:9/x?host=a,b", "a:9,b:9"),
        ("postgres:///x?host=a&user=ann", "a:5432"),
    ] {
        let options = PostgresOptions::from_url(url).expect(url);
        assert_eq!((options.place().as_str(), options.user()), (place, "ann"), "{url}");
    }
}

#[test]
fn the_connection_strings_of_providers_are_read() {
    for url in [
        "postgresql://ann:hers@ep-x-pooler.neon.example/d?sslmode=require&options=endpoint%3Dep-x\
         &channel_binding=require",
        "postgresql://ann:hers@db.example:5432/d?sslmode=verify-full&sslrootcert=system\
         &channel_binding=prefer",
        "postgres://ann:hers@h1:5432,h2:5432/d?target_session_attrs=read-write\
         &connect_timeout=10&application_name=app",
        "POSTGRES://ann:hers@h.example:5432/d?hostaddr=192.0.2.7&sslmode=verify-full",
    ] {
        let options = PostgresOptions::from_url(url).expect(url);
        assert_eq!((options.user(), options.database()), ("ann", "d"), "{url}");
    }
}
