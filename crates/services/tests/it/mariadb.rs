//! A MariaDB server of a test's own.

use holdline_services::{MariaDbConfig, MariaDbServer};

#[test]
fn an_old_copy_is_restored_without_later_data() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("create table kept (a int) engine = InnoDB; insert into kept values (1)");
    let copy = server.save();
    server.sql("insert into kept values (2)");
    let all = "select a from kept order by a";
    assert_eq!(server.sql(all), ["1", "2"]);
    server.restore(&copy);
    assert_eq!(server.sql(all), ["1"]);
}
