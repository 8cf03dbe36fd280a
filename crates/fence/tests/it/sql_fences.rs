//! What the fences of both SQL servers do. These are macros because a fence takes `&Client` from
//! PostgreSQL and `&mut Conn` from MariaDB: `$by` is `&` or `&mut`.
//!
//! The file that calls them has `apples`, `put` and `begin` for its server.

/// A mark is raised by seals and writes, and never falls.
macro_rules! marks_only_grow {
    ($fence:ident, $server:expr, $client:ident, $($by:tt)+) => {{
        let server = $server;
        let mut db = $client(&server.url()).await;
        let limit = NonZeroU64::new(1 << 40).expect("not zero");
        let fence = $fence::new("stock/17").with_rules(Rules::default().max_jump(limit));
        assert_eq!(fence.mark($($by)+ db).await.expect("readable"), None);
        assert_eq!(word_of(&fence.check($($by)+ db, &Proof::shared(token(1))).await), "yes");

        for (mine, says, mark) in [
            (33, "yes", 33),
            (33, "yes", 33),
            (32, "stale 32 33", 33),
            (34, "yes", 34),
            (33, "stale 33 34", 34),
            (34 + (1 << 40), "yes", 34 + (1 << 40)),
            (FencingToken::MAX.get(), "far", 34 + (1 << 40)),
        ] {
            assert_eq!(word_of(&fence.seal($($by)+ db, &proof(mine)).await), says, "seal {mine}");
            let wrote =
                fence.check_and_write(&mut db, &proof(mine), async |step| put(step, 9).await).await;
            assert_eq!(word_of(&wrote), says, "write {mine}");
            assert_eq!(fence.mark($($by)+ db).await.expect("readable"), Some(token(mark)));
        }
        let late = word_of(&fence.check($($by)+ db, &Proof::shared(token(34))).await);
        assert_eq!(late.split(' ').next(), Some("stale"));

        // The largest token there is, where nothing limits it.
        let free = $fence::new("free");
        assert_eq!(word_of(&free.seal($($by)+ db, &proof(FencingToken::MAX.get())).await), "yes");
        assert_eq!(free.mark($($by)+ db).await.expect("readable"), Some(FencingToken::MAX));
    }};
}

/// The write of a late holder does not begin.
macro_rules! refused_is_unwritten {
    ($fence:ident, $server:expr, $client:ident, $($by:tt)+) => {{
        let server = $server;
        let mut db = $client(&server.url()).await;
        let fence = $fence::new("stock/17");
        fence.seal($($by)+ db, &proof(34)).await.expect("the first");
        let mut ran = false;
        let answer = fence
            .check_and_write(&mut db, &proof(33), async |step| {
                ran = true;
                put(step, 8).await
            })
            .await;
        assert_eq!(word_of(&answer), "stale 33 34");
        assert!(!ran, "the write of a late holder does not begin");
        assert_eq!(apples(&server), "10");
        assert_eq!(server.sql("SELECT resource, mark FROM holdline_fence"), ["stock/17|34"]);
    }};
}

/// A transaction that is rolled back leaves the mark that was there, if any; a commit raises it.
macro_rules! rollbacks_keep_the_mark {
    ($fence:ident, $server:expr, $client:ident, $($by:tt)+) => {{
        let server = $server;
        let mut db = $client(&server.url()).await;
        let fence = $fence::new("stock/17");
        for before in [None, Some(30)] {
            if let Some(first) = before {
                fence.seal($($by)+ db, &proof(first)).await.expect("the first");
            }
            #[allow(unused_mut, reason = "PostgreSQL's is taken by `&`")]
            let mut step = begin(&mut db).await;
            fence.seal($($by)+ step, &proof(34)).await.expect("newer");
            put($($by)+ step, 7).await.expect("written");
            step.rollback().await.expect("rolled back");
            assert_eq!(fence.mark($($by)+ db).await.expect("readable"), before.map(token));
            assert_eq!(apples(&server), "10");

            let answer = fence
                .check_and_write(&mut db, &proof(34), async |step| {
                    put(step, 7).await.map_err(|error| error.to_string())?;
                    Err::<(), _>("no more apples".to_owned())
                })
                .await;
            assert_eq!(word_of(&answer), "write");
            assert_eq!(fence.mark($($by)+ db).await.expect("readable"), before.map(token));
            assert_eq!(apples(&server), "10");
        }

        #[allow(unused_mut, reason = "PostgreSQL's is taken by `&`")]
        let mut step = begin(&mut db).await;
        fence.seal($($by)+ step, &proof(34)).await.expect("newer");
        put($($by)+ step, 7).await.expect("written");
        step.commit().await.expect("committed");
        assert_eq!(fence.mark($($by)+ db).await.expect("readable"), Some(token(34)));
        assert_eq!(apples(&server), "7");
    }};
}

/// A fence that is bound to a lock name refuses tokens of other names, and of none.
macro_rules! other_names_are_refused {
    ($fence:expr, $db:ident, $($by:tt)+) => {{
        let name = |text| LockName::new(text).expect("a name");
        let bound = $fence.with_rules(Rules::default().guarded_by(name("stock/17")));
        for (proof, says) in [
            (proof(35).with_name(name("stock/18")), "name"),
            (proof(35), "name"),
            (proof(35).with_name(name("stock/17")), "yes"),
        ] {
            assert_eq!(word_of(&bound.check($($by)+ $db, &proof).await), says, "{proof:?}");
            assert_eq!(word_of(&bound.seal($($by)+ $db, &proof).await), says, "{proof:?}");
        }
    }};
}

pub(crate) use {
    marks_only_grow, other_names_are_refused, refused_is_unwritten, rollbacks_keep_the_mark,
};
