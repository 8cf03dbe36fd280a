//! Merges findings that several servers share, and names their addresses.

use holdline_core::{Finding, Health};

/// Merges equal findings of several servers, check by check.
pub(super) fn merge(each: &[(String, Vec<Finding>)]) -> Vec<Finding> {
    let mut merged: Vec<(Vec<&str>, &Finding)> = Vec::new();
    for (address, findings) in each {
        for finding in findings {
            // Findings without a problem are equal whatever they say.
            let same = |other: &Finding| {
                other.check() == finding.check()
                    && other.health() == finding.health()
                    && (finding.health() == Health::Ok || other == finding)
            };
            match merged.iter_mut().find(|(_, other)| same(other)) {
                Some((addresses, _)) => addresses.push(address),
                None => merged.push((vec![address], finding)),
            }
        }
    }
    let place = |finding: &Finding| {
        let mut checks = each.iter().flat_map(|(_, findings)| findings).map(Finding::check);
        checks.position(|check| check == finding.check())
    };
    merged.sort_by_key(|(_, finding)| place(finding));
    merged.into_iter().map(|(addresses, finding)| finding.at(&where_at(&addresses, each))).collect()
}

fn where_at(addresses: &[&str], each: &[(String, Vec<Finding>)]) -> String {
    if addresses.len() == each.len() && each.len() > 1 {
        format!("all {}", each.len())
    } else {
        addresses.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(found: &str) -> Finding {
        Finding::ok("check", "it matters", found)
    }

    #[test]
    fn equal_findings_are_merged_and_problems_name_their_addresses() {
        let on = |address: &str, one: Finding| {
            (address.to_owned(), vec![one, Finding::ok("other", "it matters", "fine")])
        };
        let each = [
            on("a", finding("1 MiB")),
            on("b", finding("full").fail("mend")),
            on("c", finding("2 MiB")),
            on("d", finding("full").fail("mend")),
        ];
        let merged = merge(&each);
        let merged: Vec<(&str, &str, Health)> =
            merged.iter().map(|one| (one.check(), one.found(), one.health())).collect();
        assert_eq!(
            merged,
            [
                ("check", "a, c: 1 MiB", Health::Ok),
                ("check", "b, d: full", Health::Error),
                ("other", "all 4: fine", Health::Ok),
            ]
        );
    }
}
