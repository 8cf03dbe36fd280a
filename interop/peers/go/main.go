// Drives other lock libraries of Go for `cargo xtask bench peers`.
//
// Usage: peers SYSTEM CONTENDERS SERVER...
//
// It prints `ready VERSION`. For each line `run NAME START END` the contenders take and give back
// one lock, as often as they can between these two moments of CLOCK_MONOTONIC in nanoseconds. It
// prints `ran` when all are done. For a line `report` it prints a line for each grant, then `done`:
// the number of the contender, and when it asked, was granted, began to release and had released.
//
// A line `run NAME START END COUNT` is for the first COUNT contenders, each with a lock of its own:
// NAME/0, NAME/1 and so on.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Waits until the lock of this name is held, and returns what releases it.
type contender func(name string) (release func() error, err error)

// What a process shares: it makes contenders.
type system func() (contender, error)

type opener struct {
	module string
	open   func(servers []string) (system, error)
}

var openers = map[string]opener{
	"redsync":     {"github.com/go-redsync/redsync/v4", openRedsync},
	"redislock":   {"github.com/bsm/redislock", openRedislock},
	"etcd":        {"go.etcd.io/etcd/client/v3", openEtcd},
	"pgx":         {"github.com/jackc/pgx/v5", openAdvisory},
	"pgx-row":     {"github.com/jackc/pgx/v5", openPostgresRow},
	"get-lock":    {"github.com/go-sql-driver/mysql", openGetLock},
	"mariadb-row": {"github.com/go-sql-driver/mysql", openMariaDbRow},
}

type turn struct {
	contender                           int
	asked, granted, releasing, released int64
}

func main() {
	if err := drive(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func drive(name, count string, servers []string) error {
	opener, found := openers[name]
	contenders, err := strconv.Atoi(count)
	if !found || err != nil {
		return fmt.Errorf("no such system: %s %s", name, count)
	}
	system, err := opener.open(servers)
	if err != nil {
		return err
	}
	all := make([]contender, contenders)
	for number := range all {
		if all[number], err = system(); err != nil {
			return err
		}
	}
	fmt.Println("ready", version(opener.module))
	var turns []turn
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "report" {
			report(turns)
			continue
		}
		start, startErr := strconv.ParseInt(words[2], 10, 64)
		end, endErr := strconv.ParseInt(words[3], 10, 64)
		if startErr != nil || endErr != nil {
			return fmt.Errorf("no times: %s", lines.Text())
		}
		names := make([]string, contenders)
		for number := range names {
			names[number] = words[1]
		}
		if len(words) == 5 {
			count, err := strconv.Atoi(words[4])
			if err != nil || count > contenders {
				return fmt.Errorf("no count: %s", lines.Text())
			}
			names = names[:count]
			for number := range names {
				names[number] = fmt.Sprint(words[1], "/", number)
			}
		}
		if turns, err = run(all, names, start, end); err != nil {
			return err
		}
		fmt.Println("ran")
	}
	return nil
}

// Each name is for the contender of its place.
func run(all []contender, names []string, start, end int64) ([]turn, error) {
	turns, errs := make([][]turn, len(names)), make([]error, len(names))
	time.Sleep(time.Duration(start - now()))
	var running sync.WaitGroup
	for number, name := range names {
		running.Go(func() {
			turns[number], errs[number] = contend(number, all[number], name, end)
		})
	}
	running.Wait()
	var joined []turn
	for number := range names {
		if errs[number] != nil {
			return nil, errs[number]
		}
		joined = append(joined, turns[number]...)
	}
	return joined, nil
}

func contend(number int, lock contender, name string, end int64) ([]turn, error) {
	var turns []turn
	for asked := now(); asked < end; asked = now() {
		release, err := lock(name)
		if err != nil {
			return nil, err
		}
		granted := now()
		releasing := now()
		if err := release(); err != nil {
			return nil, err
		}
		turns = append(turns, turn{number, asked, granted, releasing, now()})
	}
	return turns, nil
}

func report(turns []turn) {
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for _, t := range turns {
		fmt.Fprintln(output, t.contender, t.asked, t.granted, t.releasing, t.released)
	}
	fmt.Fprintln(output, "done")
}

func now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// The version of a module that this program was built with.
func version(module string) string {
	if info, found := debug.ReadBuildInfo(); found {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}
