//! A MariaDB server of a test's own.

use holdline_services::{MariaDbConfig, MariaDbServer};

#[test]
fn an_old_copy_comes_back_and_forgets_what_came_later() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("create table kept (a int) engine = InnoDB; insert into kept values (1)");
    let copy = server.save();
    server.sql("insert into kept values (2)");
    let all = "select a from kept order by a";
    assert_eq!(server.sql(all), ["1", "2"]);
    server.restore(&copy);
    assert_eq!(server.sql(all), ["1"]);
}
