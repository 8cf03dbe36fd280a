//! The messages in `src/proto.rs`, written by hand, are those of etcd's published interface.
//!
//! Both texts are parsed and compared: every number, type and label of each field in
//! `src/proto.rs`, every number of an enumeration, every call.

use std::collections::{BTreeMap, BTreeSet};

const THEIRS: &str = include_str!("../proto/etcd.proto");
const OURS: &str = include_str!("../src/proto.rs");
const CLIENT: &str = include_str!("../src/client.rs");

/// A message that has another name than etcd's, or represents several of etcd's that agree.
const NAMES: [(&str, &[&str]); 11] = [
    ("LeaseRequest", &["LeaseKeepAliveRequest", "LeaseTimeToLiveRequest"]),
    ("LeaseResponse", &["LeaseGrantResponse", "LeaseKeepAliveResponse", "LeaseTimeToLiveResponse"]),
    ("Empty", &["StatusRequest", "MemberListRequest"]),
    ("MembersResponse", &["MemberListResponse"]),
    // The choices within a message.
    ("Request", &["RequestOp"]),
    ("Response", &["ResponseOp"]),
    ("CompareWith", &["Compare"]),
    ("WatchWhat", &["WatchRequest"]),
    ("Event", &["Event"]),
    ("KeyValue", &["KeyValue"]),
    ("Member", &["Member"]),
];

/// A field in the wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    kind: String,
    repeated: bool,
    chosen: bool,
}

/// Fields, or values of an enumeration, by their numbers.
type Numbers<T> = BTreeMap<u32, T>;

#[derive(Debug, Default)]
struct Interface {
    messages: BTreeMap<String, Numbers<Field>>,
    enums: BTreeMap<String, Numbers<String>>,
    calls: BTreeSet<(String, String, String)>,
}

/// How a name is compared: etcd writes `ID`, `dbSize` and `create_revision`.
fn plain(name: &str) -> String {
    match name {
        "kind" => "type".to_owned(),
        _ => name.replace('_', "").to_lowercase(),
    }
}

fn number(text: &str) -> u32 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// Reads what etcd publishes.
fn theirs() -> Interface {
    let mut all = Interface::default();
    let mut open: Vec<(&str, &str)> = Vec::new();
    for line in THEIRS.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let words: Vec<&str> = line.split(|c: char| " =;(){}".contains(c)).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if line.ends_with('{') {
            let (kind, name) = (words[0], words[1]);
            match kind {
                "message" => drop(all.messages.entry(name.to_owned()).or_default()),
                "enum" => drop(all.enums.entry(name.to_owned()).or_default()),
                "oneof" | "service" => {}
                other => panic!("unknown: {other}"),
            }
            open.push((kind, name));
            continue;
        }
        if line.ends_with('}') {
            open.pop();
            continue;
        }
        let of = |wanted: &str| open.iter().rev().find(|(kind, _)| *kind == wanted);
        match (open.last().map(|(kind, _)| *kind), words.as_slice()) {
            (Some("enum"), [name, value]) => {
                let (_, inside) = of("enum").expect("open");
                let values = all.enums.get_mut(*inside).expect("known");
                values.insert(number(value), plain(name));
            }
            (Some("service"), ["rpc", name, rest @ ..]) => {
                let (_, service) = of("service").expect("open");
                let types = rest.iter().filter(|word| !["stream", "returns"].contains(word));
                let types: Vec<&str> = types.copied().collect();
                let [asks, answers] = types[..] else { panic!("{line}") };
                let call = format!("/etcdserverpb.{service}/{name}");
                all.calls.insert((call, asks.to_owned(), answers.to_owned()));
            }
            (Some("message" | "oneof"), [rest @ .., name, value]) if line.ends_with(';') => {
                let (_, inside) = of("message").expect("open");
                let field = Field {
                    name: plain(name),
                    kind: rest.last().expect("a type").rsplit('.').next().expect("one").to_owned(),
                    repeated: rest[0] == "repeated",
                    chosen: open.last().is_some_and(|(kind, _)| *kind == "oneof"),
                };
                all.messages.get_mut(*inside).expect("known").insert(number(value), field);
            }
            _ => {}
        }
    }
    all
}

/// Parses `src/proto.rs`: the derive uses its attributes.
fn ours() -> Interface {
    let mut all = Interface::default();
    let (mut derives, mut inside, mut attribute) = ("", "", "");
    for line in OURS.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if line.starts_with("#[derive(") {
            derives = line;
        } else if let Some(rest) = line.strip_prefix("#[prost(") {
            attribute = rest.trim_end_matches(")]");
        } else if let Some(rest) = line.strip_prefix("pub(crate) ")
            && line.contains('{')
        {
            inside = rest.split_whitespace().nth(1).expect("a name");
            match derives.contains("Enumeration") {
                true => drop(all.enums.insert(inside.to_owned(), BTreeMap::new())),
                false => drop(all.messages.insert(inside.to_owned(), BTreeMap::new())),
            }
        } else if derives.contains("Enumeration") && line.contains(" = ") {
            let (name, value) = line.split_once(" = ").expect("both");
            all.enums.get_mut(inside).expect("known").insert(number(value), plain(name));
        } else if !attribute.is_empty() {
            let fields = all.messages.get_mut(inside).expect("known");
            // A oneof is a separate type, which is parsed there.
            if !attribute.starts_with("oneof") {
                let (tag, field) = field(attribute, line, derives.contains("Oneof"));
                assert!(fields.insert(tag, field).is_none(), "{inside}: {tag} twice");
            }
            attribute = "";
        }
    }
    all
}

/// One field, or one of a choice: what its attribute says, and its name and type.
fn field(attribute: &str, line: &str, chosen: bool) -> (u32, Field) {
    let parts: Vec<&str> = attribute.split(", ").collect();
    let tag = parts.iter().find_map(|part| part.strip_prefix("tag = ")).expect("a number");
    let text = line.trim_start_matches("pub(crate) ").trim_end_matches(',');
    let (name, rust) = text.split_once([':', '(']).expect("a name and a type");
    let inner = |text: &str| {
        let mut letters =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        letters.next_back().expect("a type").to_owned()
    };
    let kind = match parts[0].split_once(" = ") {
        Some(("enumeration", name)) => name.trim_matches('"').to_owned(),
        Some((kind, _)) => kind.to_owned(),
        None if parts[0] == "message" => inner(rust),
        None => parts[0].to_owned(),
    };
    let repeated = parts.contains(&"repeated");
    (number(tag), Field { name: plain(name), kind, repeated, chosen })
}

/// Returns the messages of etcd that a message represents.
fn stands_for(name: &str) -> Vec<&str> {
    let known = NAMES.iter().find(|(ours, _)| *ours == name);
    known.map_or_else(|| vec![name], |(_, theirs)| theirs.to_vec())
}

/// Compares a field; names of a oneof differ.
fn agrees(ours: &Field, theirs: &Field, enums: &BTreeMap<String, Numbers<String>>) -> bool {
    let kind = match enums.contains_key(&theirs.kind) {
        // On the wire an enumeration is a number.
        true => ours.kind == theirs.kind || ours.kind == "int32",
        false => stands_for(&ours.kind).contains(&theirs.kind.as_str()),
    };
    let name = ours.chosen || ours.name == theirs.name;
    kind && name && (ours.repeated, ours.chosen) == (theirs.repeated, theirs.chosen)
}

#[test]
fn every_field_is_as_etcd_publishes_it() {
    let (ours, theirs) = (ours(), theirs());
    let mut fields = 0;
    for (name, numbers) in &ours.messages {
        for message in stands_for(name) {
            let published =
                theirs.messages.get(message).unwrap_or_else(|| panic!("no message {message}"));
            for (tag, field) in numbers {
                let wanted = published.get(tag);
                let wanted = wanted.unwrap_or_else(|| panic!("{message} has no field {tag}"));
                assert!(
                    agrees(field, wanted, &theirs.enums),
                    "{name}, field {tag} of {message}: ours {field:?}, theirs {wanted:?}"
                );
                fields += 1;
            }
        }
    }
    for (name, values) in &ours.enums {
        let published = theirs.enums.get(name).unwrap_or_else(|| panic!("no enum {name}"));
        for (value, word) in values {
            assert_eq!(published.get(value), Some(word), "{name}, {value}");
        }
    }
    assert_eq!(theirs.enums["EventType"][&1], "delete", "what `DELETED` is");
    // Else nothing was read.
    assert!(fields > 70 && ours.enums.len() >= 4, "{fields} fields, {:?}", ours.enums.keys());
}

#[test]
fn every_call_is_one_that_etcd_publishes() {
    let called: BTreeSet<&str> =
        CLIENT.split('"').filter(|text| text.starts_with("/etcdserverpb.")).collect();
    let theirs = theirs();
    let published: BTreeSet<&str> = theirs.calls.iter().map(|(call, _, _)| call.as_str()).collect();
    assert_eq!(called, published);
    let ours = ours();
    let known = |wanted: &str| ours.messages.keys().any(|name| stands_for(name).contains(&wanted));
    for (call, asks, answers) in &theirs.calls {
        assert!(known(asks) && known(answers), "{call}: {asks}, {answers}");
    }
}

/// The comparison sees what it is there for.
#[test]
fn a_field_with_another_number_type_or_label_is_found() {
    let theirs = theirs();
    let good = |attribute, line| {
        let (tag, ours) = field(attribute, line, false);
        let wanted = theirs.messages["KeyValue"].get(&tag);
        wanted.is_some_and(|wanted| agrees(&ours, wanted, &theirs.enums))
    };
    assert!(good("int64, tag = \"6\"", "pub(crate) lease: i64,"));
    assert!(!good("int64, tag = \"4\"", "pub(crate) lease: i64,"));
    assert!(!good("uint64, tag = \"6\"", "pub(crate) lease: u64,"));
    assert!(!good("int64, repeated, tag = \"6\"", "pub(crate) lease: Vec<i64>,"));
    assert!(!good("int64, tag = \"7\"", "pub(crate) lease: i64,"));
}
