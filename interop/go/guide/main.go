// The programs of the guides for redsync and bsm/redislock (docs/migrate), run by the interop tests.
//
// Usage: guide redsync|redislock HOST:PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var errBusy = errors.New("busy")

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Args[2]})
	guide := byRedsync
	if os.Args[1] == "redislock" {
		guide = byRedislock
	}
	err := guide(context.Background(), client)
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		fmt.Println("held")
	case errors.Is(err, errBusy), errors.As(err, &taken):
		fmt.Println("busy")
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func byRedsync(ctx context.Context, client *redis.Client) error {
	rs := redsync.New(goredis.NewPool(client))
	mutex := rs.NewMutex("nightly-report", redsync.WithExpiry(30*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	return nil
}

func byRedislock(ctx context.Context, client *redis.Client) error {
	locker := redislock.New(client)
	lock, err := locker.Obtain(ctx, "nightly-report", 30*time.Second, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy
	} else if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return nil
}
