package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Of redislock's own example. It has no default.
const redislockPause = 100 * time.Millisecond
const redislockLease = 30 * time.Second

// With its own defaults: a lease of 8 s, 32 tries, 50 to 250 ms between two.
func openRedsync(servers []string) (system, error) {
	var pools []redsyncredis.Pool
	for _, server := range servers {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: server})))
	}
	sync := redsync.New(pools...)
	return func() (contender, error) {
		return func(name string) (func() error, error) {
			mutex := sync.NewMutex(name)
			var taken *redsync.ErrTaken
			err := mutex.Lock()
			for errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
				err = mutex.Lock()
			}
			return func() error { _, err := mutex.Unlock(); return err }, err
		}, nil
	}, nil
}

func openRedislock(servers []string) (system, error) {
	locker := redislock.New(redis.NewClient(&redis.Options{Addr: servers[0]}))
	background := context.Background()
	return func() (contender, error) {
		return func(name string) (func() error, error) {
			options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)}
			lock, err := locker.Obtain(background, name, redislockLease, options)
			for errors.Is(err, redislock.ErrNotObtained) {
				lock, err = locker.Obtain(background, name, redislockLease, options)
			}
			return func() error { return lock.Release(background) }, err
		}, nil
	}, nil
}
