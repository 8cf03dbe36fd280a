//! How full the members' databases are, by the quota that each was given.
//!
//! Since 3.6 a member reports its quota in its status. Older members report it in their metrics, on
//! the client port. If a member reports it in neither, the default quota is assumed, and the
//! finding says so.

use holdline_core::Finding;
use holdline_net::socket;
use holdline_net::tls::TlsContext;
use holdline_net::url::Server;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::alarms;
use crate::error::ENGINE;
use crate::options::EtcdOptions;
use crate::proto::StatusResponse;

const SPACE: &str = "a database that is full takes no new locks";
/// The default quota: a database of this size accepts no more writes.
const DEFAULT: i64 = 2 * 1024 * 1024 * 1024;
/// A database is nearly full from this percentage of its quota on.
const NEARLY_FULL: i64 = 80;
const METRIC: &str = "etcd_server_quota_backend_bytes ";
/// More bytes than the metrics of any member.
const LONGEST_ANSWER: u64 = 8 * 1024 * 1024;
const TLS: TlsContext = TlsContext { engine: ENGINE, without: "etcd://" };

/// How much a member's database may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Bytes(i64),
    Unbounded,
    Unknown,
}

impl Quota {
    /// Asks for the quota of the member with this status.
    pub(super) async fn of(
        member: &Server,
        status: &StatusResponse,
        options: &EtcdOptions,
    ) -> Quota {
        match status.db_size_quota {
            1.. => Quota::Bytes(status.db_size_quota),
            0 => {
                let asked = timeout(options.command_timeout(), metrics(member, options)).await;
                asked.ok().flatten().map_or(Quota::Unknown, |text| among(&text))
            }
            _ => Quota::Unbounded,
        }
    }

    /// How many hundredths of it are used.
    fn percent(self, used: i64) -> i64 {
        match self {
            Quota::Bytes(quota) => used.saturating_mul(100) / quota.max(1),
            Quota::Unbounded => 0,
            Quota::Unknown => used.saturating_mul(100) / DEFAULT,
        }
    }
}

/// Reads the quota among a member's metrics. One without a bound leaves the metric at 0.
fn among(metrics: &str) -> Quota {
    let value = metrics.lines().find_map(|line| line.strip_prefix(METRIC));
    match value.and_then(|value| value.trim().parse::<f64>().ok()) {
        Some(bytes) if bytes >= 1.0 => {
            format!("{bytes:.0}").parse().map_or(Quota::Unknown, Quota::Bytes)
        }
        Some(_) => Quota::Unbounded,
        None => Quota::Unknown,
    }
}

/// Fetches a member's metrics, if it gives them to us.
async fn metrics(member: &Server, options: &EtcdOptions) -> Option<String> {
    let mut stream = socket::connect(&member.host, member.port).await.ok()?;
    match options.tls() {
        None => fetch(&mut stream, member).await,
        Some(files) => fetch(&mut TLS.wrap(stream, &member.host, files).await.ok()?, member).await,
    }
}

async fn fetch<S>(stream: &mut S, member: &Server) -> Option<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // In the old version an answer comes in one piece, and ends with its connection.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {member}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await.ok()?;
    String::from_utf8(answer).ok()
}

/// Judges the fullest of the members: each with its status and its quota.
pub(super) fn finding(statuses: &[(String, StatusResponse)], quotas: &[Quota]) -> Finding {
    let each = statuses.iter().zip(quotas).map(|((member, status), quota)| {
        (quota.percent(status.db_size), status.db_size, member, quota)
    });
    let Some((percent, used, member, quota)) = each.max_by_key(|one| (one.0, one.1)) else {
        return Finding::ok("space", SPACE, "no member reports its size");
    };
    let used = used / 1024;
    let found = match quota {
        Quota::Bytes(quota) => {
            format!("{member} is the fullest: {used} of {} KiB ({percent} %)", quota / 1024)
        }
        Quota::Unbounded => format!("{member} has {used} KiB, and no quota"),
        Quota::Unknown => format!("{member} has {used} KiB; its quota is not known, often 2 GiB"),
    };
    let raised = alarms(statuses, "NOSPACE");
    if !raised.is_empty() {
        let finding = Finding::ok("space", SPACE, format!("{found}; {}", raised.join(", ")));
        return finding.fail("compact and defragment the members, then disarm the alarm");
    }
    let finding = Finding::ok("space", SPACE, found);
    if percent >= NEARLY_FULL {
        finding.warn("compact and defragment the members, or raise --quota-backend-bytes")
    } else {
        finding
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Health;

    use super::*;

    #[test]
    fn the_quota_is_read_among_the_metrics() {
        let of = |line: &str| among(&format!("HTTP/1.0 200 OK\r\n\r\n# HELP x\n{line}\nup 1\n"));
        assert_eq!(of("etcd_server_quota_backend_bytes 4.194304e+06"), Quota::Bytes(4 << 20));
        assert_eq!(of("etcd_server_quota_backend_bytes 0"), Quota::Unbounded);
        assert_eq!(of("etcd_server_quota_backend_bytes_total 7"), Quota::Unknown);
        assert_eq!(of("etcd_server_quota_backend_bytes odd"), Quota::Unknown);
    }

    #[test]
    fn the_fullest_member_is_judged_by_its_own_quota() {
        let size = |db_size| StatusResponse { db_size, ..StatusResponse::default() };
        let of = |members: &[(i64, Quota)]| {
            let named = members.iter().enumerate();
            let statuses: Vec<_> =
                named.map(|(n, (used, _))| (format!("m{n}"), size(*used))).collect();
            let quotas: Vec<Quota> = members.iter().map(|(_, quota)| *quota).collect();
            finding(&statuses, &quotas)
        };
        for (members, health, says) in [
            (&[(79, Quota::Bytes(100))][..], Health::Ok, "m0"),
            (&[(80, Quota::Bytes(100))], Health::Warning, "(80 %)"),
            (&[(900, Quota::Bytes(1000)), (800, Quota::Bytes(10_000))], Health::Warning, "m0"),
            (&[(80, Quota::Bytes(1000)), (90, Quota::Bytes(100))], Health::Warning, "m1"),
            (&[(i64::MAX, Quota::Unbounded)], Health::Ok, "no quota"),
            (&[(DEFAULT / 2, Quota::Unknown)], Health::Ok, "not known"),
            (&[(DEFAULT / 100 * 81, Quota::Unknown)], Health::Warning, "not known"),
        ] {
            let messages = of(members);
            assert_eq!(messages.health(), health, "{messages:?}");
            assert!(messages.found().contains(says), "{messages:?}");
        }
    }
}
