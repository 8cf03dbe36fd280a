// Drives Go's concurrency.Mutex by lines on standard input; docs/etcd.md has the words.
//
// Usage: mutex ENDPOINT PREFIX
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// A contender has a session of its own, as each process would.
type contender struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

type driver struct {
	client *clientv3.Client
	prefix string

	lock       sync.Mutex
	contenders map[string]*contender
}

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{os.Args[1]},
		DialTimeout: 30 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	driver := &driver{client: client, prefix: os.Args[2], contenders: map[string]*contender{}}
	driver.say("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		// Each in its own time: who waits keeps nobody from asking.
		go func() {
			if err := driver.obey(words); err != nil {
				driver.say("error", err)
			}
		}()
	}
}

func (d *driver) obey(words []string) error {
	switch {
	case len(words) == 4 && (words[0] == "lock" || words[0] == "try"):
		return d.acquire(words[0] == "try", words[1], words[2], words[3])
	case len(words) == 2 && words[0] == "unlock":
		return d.unlock(words[1])
	}
	return fmt.Errorf("no such request: %s", strings.Join(words, " "))
}

// Returns the revision of the key, by which Go's mutexes stand in the queue.
func (d *driver) acquire(try bool, id, name, seconds string) error {
	ttl, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	session, err := concurrency.NewSession(d.client, concurrency.WithTTL(ttl))
	if err != nil {
		return err
	}
	mutex := concurrency.NewMutex(session, d.prefix+name)
	if try {
		err = mutex.TryLock(context.Background())
	} else {
		err = mutex.Lock(context.Background())
	}
	if errors.Is(err, concurrency.ErrLocked) {
		session.Close()
		d.say("busy", id)
		return nil
	}
	if err != nil {
		return err
	}
	owner, err := d.client.Get(context.Background(), mutex.Key())
	if err != nil || len(owner.Kvs) != 1 {
		return fmt.Errorf("a lock without a key: %v", err)
	}
	d.lock.Lock()
	d.contenders[id] = &contender{session, mutex}
	d.lock.Unlock()
	d.say("held", id, owner.Kvs[0].CreateRevision)
	return nil
}

func (d *driver) unlock(id string) error {
	d.lock.Lock()
	held, found := d.contenders[id]
	delete(d.contenders, id)
	d.lock.Unlock()
	if !found {
		return fmt.Errorf("nothing is held as %s", id)
	}
	if err := held.mutex.Unlock(context.Background()); err != nil {
		return err
	}
	d.say("unlocked", id)
	return held.session.Close()
}

func (d *driver) say(words ...any) {
	d.lock.Lock()
	defer d.lock.Unlock()
	fmt.Println(words...)
}
