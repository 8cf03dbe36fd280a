//! What is alike on several servers is told once, with their addresses.

use holdline_core::{Finding, Health};

/// Tells what is alike on several servers once, check by check.
pub(super) fn alike(each: &[(String, Vec<Finding>)]) -> Vec<Finding> {
    let mut told: Vec<(Vec<&str>, &Finding)> = Vec::new();
    for (address, findings) in each {
        for finding in findings {
            // How well things stand may differ in the words, where all is well.
            let same = |other: &Finding| {
                other.check() == finding.check()
                    && other.health() == finding.health()
                    && (finding.health() == Health::Ok || other == finding)
            };
            match told.iter_mut().find(|(_, other)| same(other)) {
                Some((addresses, _)) => addresses.push(address),
                None => told.push((vec![address], finding)),
            }
        }
    }
    let place = |finding: &Finding| {
        let mut checks = each.iter().flat_map(|(_, findings)| findings).map(Finding::check);
        checks.position(|check| check == finding.check())
    };
    told.sort_by_key(|(_, finding)| place(finding));
    told.into_iter().map(|(addresses, finding)| finding.at(&where_at(&addresses, each))).collect()
}

fn where_at(addresses: &[&str], each: &[(String, Vec<Finding>)]) -> String {
    match addresses.len() == each.len() && each.len() > 1 {
        true => format!("all {}", each.len()),
        false => addresses.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(found: &str) -> Finding {
        Finding::ok("check", "it matters", found)
    }

    #[test]
    fn what_is_alike_is_told_once_and_what_is_ill_by_address() {
        let on = |address: &str, one: Finding| {
            (address.to_owned(), vec![one, Finding::ok("other", "it matters", "fine")])
        };
        let each = [
            on("a", finding("1 MiB")),
            on("b", finding("full").fail("mend")),
            on("c", finding("2 MiB")),
            on("d", finding("full").fail("mend")),
        ];
        let told = alike(&each);
        let told: Vec<(&str, &str, Health)> =
            told.iter().map(|one| (one.check(), one.found(), one.health())).collect();
        assert_eq!(
            told,
            [
                ("check", "a, c: 1 MiB", Health::Ok),
                ("check", "b, d: full", Health::Error),
                ("other", "all 4: fine", Health::Ok),
            ]
        );
    }
}
