//! URLs that are accepted, and the errors for bad ones.

use std::path::Path;

use holdline_net::url::Server;

use super::*;

fn message_of(url: &str) -> String {
    MysqlOptions::from_url(url).expect_err("refused").to_string()
}

#[test]
fn a_url_is_read() {
    let options = MysqlOptions::from_url(
        "mariadb://an%20n:s%40e:c@[::1]:99/my%2Fdb?prefix=locks_&max_waiters=7\
         &connect_timeout_ms=900",
    )
    .expect("a good URL");
    assert_eq!(options.address(), &Address::Tcp(Server { host: "::1".to_owned(), port: 99 }));
    assert_eq!((options.user(), options.database()), ("an n", "my/db"));
    assert_eq!(options.password().last().as_deref(), Some("s@e:c"));
    assert_eq!((options.prefix(), options.max_waiters()), ("locks_", 7));
    assert_eq!(options.connect_timeout(), Duration::from_millis(900));
    assert!(!format!("{options:?}").contains("s@e:c"));
}

#[test]
fn omitted_parameters_have_defaults() {
    let options = MysqlOptions::from_url("mysql://ann@db/x").expect("a good URL");
    assert_eq!(options.address(), &Address::Tcp(Server { host: "db".to_owned(), port: 3306 }));
    assert_eq!((options.database(), options.prefix()), ("x", "holdline_"));
    assert!(options.password().last().is_none() && options.tls().is_none());
    let options = MysqlOptions::from_url("mysql://ann@/x?socket=/run/my.sock").expect("good");
    assert_eq!(options.address().to_string(), "/run/my.sock");
}

#[test]
fn tls_is_on_or_off_and_nothing_between() {
    let tls = |parameters: &str| {
        let url = format!("mysql://ann@db/x?{parameters}");
        MysqlOptions::from_url(&url).map(|options| options.tls().cloned())
    };
    assert_eq!(tls("sslmode=disable").expect("good"), None);
    for mode in ["require", "verify-full"] {
        let files = tls(&format!("sslmode={mode}&ca=/ca")).expect("good").expect("TLS");
        assert_eq!(files.ca.as_deref(), Some(Path::new("/ca")));
    }
    for (parameters, says) in [
        ("sslmode=preferred", "does not check"),
        ("sslmode=on", "unknown"),
        ("ca=/ca", "need TLS"),
        ("ssl-mode=required", "called `sslmode`"),
        ("sslmode=require&ssl-ca=/ca", "called `ca`"),
        ("sslmode=require&cert=/c", "both"),
    ] {
        let error = tls(parameters).expect_err("refused").to_string();
        assert!(error.contains(says), "{parameters}: {error}");
    }
    let error = message_of("mysql://ann@/x?sslmode=require&socket=/run/s");
    assert!(error.contains("unix socket"), "{error}");
}

#[test]
fn errors_about_urls_do_not_show_the_password() {
    for (url, says) in [
        ("postgres://ann:hers@db/x", "must begin with"),
        ("mysql://db/x", "names no user"),
        ("mysql://ann:hers@db", "names no database"),
        ("mysql://ann:hers@db:port/x", "port"),
        ("mysql://ann:hers@db:65536/x", "port"),
        ("mysql://ann:hers@a,b/x", "several hosts"),
        ("mysql://ann:hers@::1/x", "brackets"),
        ("mysql://ann:hers@db/x?socket=/s", "both a host"),
        ("mysql://ann:hers@/x?socket=s", "no path"),
        ("mysql://ann:hers@db/x?prefx=a", "`prefix`"),
        ("mysql://ann:hers@db/x?prefix=a&prefix=b", "twice"),
        ("mysql://ann:hers@db/x?prefix=", "prefix"),
        ("mysql://ann:hers@db/x?prefix=a-b", "letters a to z"),
        ("mysql://ann:hers@db/x?prefix=_a", "begin with a letter"),
        ("mysql://ann:hers@db/x?max_waiters=0", "max_waiters"),
        ("mysql://ann:hers@db/x?command_timeout_ms=50", "command_timeout"),
        ("mysql://ann:he?rs@db/x", "%3F"),
    ] {
        let reply = message_of(url);
        assert!(reply.contains(says), "{url}: {reply}");
        assert!(!reply.contains("hers"), "{url}: {reply}");
    }
}
