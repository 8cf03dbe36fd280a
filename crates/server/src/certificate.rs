//! What a client certificate says about its owner: its subject and its alternative names.
//!
//! - D1: the text of a subject is unambiguous. What separates attributes is escaped within them, so
//!   a common name such as `a,O=Admins` is not read as another attribute.
//! - D2: a certificate that cannot be read in full has no names, so it identifies nobody.

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::config::CertificateConfig;

/// The names of a certificate whose signature TLS has checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// As RFC 4514 writes it: `CN=build-7,O=Example`, the most specific attribute first.
    pub(crate) subject: String,
    /// As OpenSSL writes them: `DNS:build-7.example`, `URI:spiffe://example/build`.
    pub(crate) alternative: Vec<String>,
    /// When it expires.
    pub(crate) expires: Timestamp,
}

impl Certificate {
    /// Reads the names; `None` if the certificate has a form that we do not know.
    pub(crate) fn read(der: &[u8]) -> Option<Certificate> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let expires = certificate.validity().not_after.timestamp();
        Some(Certificate {
            subject: subject(certificate.subject())?,
            alternative: alternative(&certificate)?,
            expires: Timestamp::from_second(expires).ok()?,
        })
    }

    /// Returns whether an entry of the settings is about this certificate.
    pub(crate) fn is_meant_by(&self, entry: &CertificateConfig) -> bool {
        let by_subject = entry.subject.as_ref().is_none_or(|subject| *subject == self.subject);
        let has = |wanted: &String| self.alternative.iter().any(|name| is_same(name, wanted));
        by_subject && entry.san.as_ref().is_none_or(has)
    }
}

/// Compares alternative names. Those of the DNS have no upper and lower case.
fn is_same(one: &str, other: &str) -> bool {
    if one.starts_with("DNS:") { one.eq_ignore_ascii_case(other) } else { one == other }
}

fn subject(name: &X509Name<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.iter_rdn() {
        let attributes = part.iter().map(text_of).collect::<Option<Vec<String>>>();
        parts.push(attributes?.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

fn text_of(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let number = attribute.attr_type().to_id_string();
    // The short names of RFC 4514; other attributes have their number.
    let name = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.1" => "UID",
        number => number,
    };
    Some(format!("{name}={}", escaped(attribute.as_str().ok()?)))
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for (at, c) in value.char_indices() {
        let is_last = at + c.len_utf8() == value.len();
        let separates = matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=');
        let at_the_edge = (c == '#' && at == 0) || (c == ' ' && (at == 0 || is_last));
        if separates || at_the_edge {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

fn alternative(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let Some(extension) = certificate.subject_alternative_name().ok()? else {
        return Some(Vec::new());
    };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::URI(name) => Some(format!("URI:{name}")),
        GeneralName::RFC822Name(name) => Some(format!("email:{name}")),
        _ => None,
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_cannot_pass_for_two() {
        for (value, text) in [
            ("build-7", "build-7"),
            ("a,O=Admins", r"a\,O\=Admins"),
            ("a+OU=b", r"a\+OU\=b"),
            (r"a\", r"a\\"),
            (" a b ", r"\ a b\ "),
            ("#1", r"\#1"),
            (" ", r"\ "),
        ] {
            assert_eq!(escaped(value), text);
        }
    }

    #[test]
    fn both_names_of_an_entry_must_fit() {
        let certificate = Certificate {
            subject: "CN=a,O=b".to_owned(),
            alternative: vec!["DNS:a.example".to_owned(), "URI:spiffe://b/a".to_owned()],
            expires: Timestamp::MAX,
        };
        let entry = |subject: Option<&str>, san: Option<&str>| CertificateConfig {
            subject: subject.map(str::to_owned),
            san: san.map(str::to_owned),
            ..CertificateConfig::default()
        };
        for (subject, san, fits) in [
            (Some("CN=a,O=b"), None, true),
            (Some("CN=a"), None, false),
            (Some("cn=a,O=b"), None, false),
            (None, Some("DNS:A.example"), true),
            (None, Some("URI:spiffe://b/A"), false),
            (None, Some("a.example"), false),
            (Some("CN=a,O=b"), Some("URI:spiffe://b/a"), true),
            (Some("CN=a,O=b"), Some("DNS:b.example"), false),
        ] {
            assert_eq!(certificate.is_meant_by(&entry(subject, san)), fits, "{subject:?} {san:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_names() {
        for bytes in [&b""[..], b"0", &[0x30, 0x82, 0xff, 0xff], &[0; 64]] {
            assert_eq!(Certificate::read(bytes), None);
        }
    }
}
