//! Names become keys, and keys names.

use super::*;

fn layout() -> Layout {
    Layout::new("holdline:{name}", "holdline:")
}

#[test]
fn names_become_keys_and_keys_names() {
    for (text, key) in [
        ("demo", "holdline:{demo}"),
        ("a:1q", "holdline:{a:1q}"),
        ("{a}:1d", "holdline:{%7Ba%7D:1d}"),
        ("%7B", "holdline:{%257B}"),
        ("ключ 🔒", "holdline:{ключ 🔒}"),
    ] {
        let name = LockName::new(text).expect("a good name");
        let keys = layout().keys_of(&name);
        assert_eq!(String::from_utf8_lossy(&keys.lock), key);
        assert_eq!(layout().name_of(&keys.lock), Some(name.clone()));
        assert_eq!(layout().name_of(&keys.data).as_ref(), Some(&name));
        assert_eq!(layout().name_of(&keys.queue), None);
        assert_eq!(layout().latch_of(&name), format!("{key}:1c").into_bytes());
        assert!(layout().is_latch(&layout().latch_of(&name)));
        assert!(!layout().is_latch(&keys.lock) && !layout().is_latch(&keys.data));
        assert_eq!(layout().name_of(&layout().latch_of(&name)), None);
        let mut args = Args::default();
        layout().push_lock(&mut args, &name);
        assert_eq!(args.as_encoded(), Args::from([keys.lock]).as_encoded());
    }
}

#[test]
fn the_scripts_use_the_same_suffixes_default_counter_and_default_request() {
    let acquire = include_str!("../../scripts/acquire_fast.lua");
    let suffixes = format!("local QUEUE, DATA, TOMBSTONE, TIMES = '{QUEUE}', '{DATA}', ");
    assert!(include_str!("../../scripts/native.lua").contains(&suffixes));
    let options = crate::RedisOptions::default();
    let (layout, prefix) = (Layout::new(options.key_template(), options.prefix()), "mine:");
    let counter = String::from_utf8(layout.counter()).expect("text");
    assert!(include_str!("../../scripts/server_one.lua").contains(&format!("or '{counter}'")));
    assert!(layout.has_default_counter());
    assert!(!Layout::new(options.key_template(), prefix).has_default_counter());
    let usual = format!("'x-q {}'", options.max_waiters());
    assert!(acquire.contains(&usual), "{usual}");
}

#[test]
fn a_key_that_we_would_not_write_is_no_name() {
    for key in [
        "holdline:fence",
        "holdline:{}",
        "holdline:{a",
        "holdline:{a}b",
        "holdline:{a%}",
        "holdline:{a%41}",
        "holdline:{%7b}",
        "other:{a}",
        "holdline:{a}:1t:00",
        "holdline:{a\u{1b}}",
    ] {
        assert_eq!(layout().name_of(key.as_bytes()), None, "{key}");
    }
    assert_eq!(layout().name_of(b"holdline:{\xff}"), None);
}

#[test]
fn in_the_plain_dialect_a_name_is_inserted_unchanged() {
    let layout = Layout::plain("lock:{name}:x", "mine:");
    let name = LockName::new("a{b}%").expect("a good name");
    let mut args = Args::default();
    layout.push_lock(&mut args, &name);
    assert_eq!(args.as_encoded(), Args::from(["lock:a{b}%:x"]).as_encoded());
    assert_eq!(layout.wake(&name), b"mine:wake:lock:a{b}%:x");
}

#[test]
fn in_a_cluster_all_keys_of_a_name_have_its_hash_tag() {
    let layout = Layout::of_cluster("app:{name}:{x}", "app:");
    for (text, hash_tag) in [("demo", "demo"), ("{a}b", "%7Ba%7Db"), ("}{", "%7D%7B"), ("%", "%25")]
    {
        let name = LockName::new(text).expect("a good name");
        let mut args = Args::default();
        layout.push_lock(&mut args, &name);
        layout.push_counter_of(&mut args, &name);
        layout.push_guard(&mut args, &name);
        let written = String::from_utf8_lossy(args.as_encoded()).into_owned();
        let keys: Vec<&str> = written.lines().filter(|queue| !queue.starts_with('$')).collect();
        let expected = [
            format!("app:{{{hash_tag}}}:{{x}}"),
            format!("app:fence:{{{hash_tag}}}"),
            format!("app:{{{hash_tag}}}:{{x}}:1m"),
        ];
        assert_eq!(keys, expected);
        for key in keys {
            let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
            assert_eq!(tagged.map(|(tagged, _)| tagged), Some(&*Layout::hash_tag(&name)), "{key}");
            let alone = layout.name_of(key.as_bytes());
            assert_eq!(alone, (key == expected[0]).then(|| name.clone()));
        }
        assert!(!layout.has_default_counter());
    }
}

#[test]
fn a_template_may_have_both_ends() {
    let layout = Layout::new("app:{name}:lock", "app:");
    let name = LockName::new("a*b").expect("a good name");
    let keys = layout.keys_of(&name);
    assert_eq!(String::from_utf8_lossy(&keys.data), "app:{a*b}:lock:1d");
    assert_eq!(layout.name_of(&keys.data), Some(name));
    assert_eq!(layout.names_beginning("a*"), b"app:{a\\**");
    assert_eq!(layout.counter(), b"app:fence");
}
