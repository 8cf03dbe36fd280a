package main

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// Between two tries of a row that is taken. ShedLock itself does not wait.
const rowPause = 10 * time.Millisecond

// The statements of ShedLock with the time of the database.
const (
	postgresInsert = `insert into shedlock (name, lock_until, locked_at, locked_by)
		values ($1, 'epoch', 'epoch', '') on conflict (name) do nothing`
	postgresTake = `update shedlock set lock_until = clock_timestamp() + interval '30 s',
		locked_at = clock_timestamp(), locked_by = $2
		where name = $1 and lock_until <= clock_timestamp()`
	postgresGive = `update shedlock set lock_until = clock_timestamp()
		where name = $1 and locked_by = $2`
	mariadbInsert = `insert ignore into shedlock (name, lock_until, locked_at, locked_by)
		values (?, '2000-01-01', '2000-01-01', '')`
	mariadbTake = `update shedlock set lock_until = timestampadd(second, 30, sysdate(6)),
		locked_at = sysdate(6), locked_by = ? where name = ? and lock_until <= sysdate(6)`
	mariadbGive = `update shedlock set lock_until = sysdate(6) where name = ? and locked_by = ?`
)

var background = context.Background()

// Each contender has a session.
func openAdvisory(servers []string) (system, error) {
	return func() (contender, error) {
		session, err := pgx.Connect(background, servers[0])
		return func(name string) (func() error, error) {
			hash := fnv.New64a()
			hash.Write([]byte(name))
			key := int64(hash.Sum64())
			_, err := session.Exec(background, "select pg_advisory_lock($1)", key)
			return func() error {
				_, err := session.Exec(background, "select pg_advisory_unlock($1)", key)
				return err
			}, err
		}, err
	}, nil
}

func openPostgresRow(servers []string) (system, error) {
	return func() (contender, error) {
		session, err := pgx.Connect(background, servers[0])
		if err != nil {
			return nil, err
		}
		me := fmt.Sprint("session ", session.PgConn().PID())
		rows := rows{known: map[string]bool{}}
		rows.insert = func(name string) error {
			_, err := session.Exec(background, postgresInsert, name)
			return err
		}
		rows.take = func(name string) (int64, error) {
			done, err := session.Exec(background, postgresTake, name, me)
			return done.RowsAffected(), err
		}
		rows.give = func(name string) error {
			_, err := session.Exec(background, postgresGive, name, me)
			return err
		}
		return rows.lock, nil
	}, nil
}

func openMariaDbRow(servers []string) (system, error) {
	return func() (contender, error) {
		session, me, err := mariadb(servers[0])
		if err != nil {
			return nil, err
		}
		rows := rows{known: map[string]bool{}}
		rows.insert = func(name string) error {
			_, err := session.ExecContext(background, mariadbInsert, name)
			return err
		}
		rows.take = func(name string) (int64, error) {
			done, err := session.ExecContext(background, mariadbTake, me, name)
			if err != nil {
				return 0, err
			}
			return done.RowsAffected()
		}
		rows.give = func(name string) error {
			_, err := session.ExecContext(background, mariadbGive, name, me)
			return err
		}
		return rows.lock, nil
	}, nil
}

// Each contender has a session.
func openGetLock(servers []string) (system, error) {
	return func() (contender, error) {
		session, _, err := mariadb(servers[0])
		return func(name string) (func() error, error) {
			return func() error { return one(session, "select release_lock(?)", name) },
				one(session, "select get_lock(?, 60)", name)
		}, err
	}, nil
}

// Opens a session, and returns it with a name for it.
func mariadb(server string) (*sql.Conn, string, error) {
	pool, err := sql.Open("mysql", server)
	if err != nil {
		return nil, "", err
	}
	session, err := pool.Conn(background)
	if err != nil {
		return nil, "", err
	}
	var id int64
	err = session.QueryRowContext(background, "select connection_id()").Scan(&id)
	return session, fmt.Sprint("session ", id), err
}

// Fails unless the answer is 1.
func one(session *sql.Conn, query, name string) error {
	var answer sql.NullInt64
	err := session.QueryRowContext(background, query, name).Scan(&answer)
	if err == nil && answer.Int64 != 1 {
		err = fmt.Errorf("%s: %v", query, answer)
	}
	return err
}

// A table with a row for each name, leased to one session at a time.
type rows struct {
	known  map[string]bool
	insert func(name string) error
	take   func(name string) (int64, error)
	give   func(name string) error
}

func (r *rows) lock(name string) (func() error, error) {
	if !r.known[name] {
		if err := r.insert(name); err != nil {
			return nil, err
		}
		r.known[name] = true
	}
	for {
		taken, err := r.take(name)
		if err != nil || taken == 1 {
			return func() error { return r.give(name) }, err
		}
		time.Sleep(rowPause)
	}
}
