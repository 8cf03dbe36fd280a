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

// Between two tries. redislock has no default, and that of redsync, 50 to 250 ms, costs it hand-offs.
const redisPause = 10 * time.Millisecond
const redislockLease = 30 * time.Second

// With its own defaults but for the pause: a lease of 8 s, 32 tries.
func openRedsync(servers []string) (system, error) {
	var pools []redsyncredis.Pool
	for _, server := range servers {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: server})))
	}
	sync := redsync.New(pools...)
	return func() (contender, error) {
		return func(name string) (func() error, error) {
			mutex := sync.NewMutex(name, redsync.WithRetryDelay(redisPause))
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
			options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redisPause)}
			lock, err := locker.Obtain(background, name, redislockLease, options)
			for errors.Is(err, redislock.ErrNotObtained) {
				lock, err = locker.Obtain(background, name, redislockLease, options)
			}
			return func() error { return lock.Release(background) }, err
		}, nil
	}, nil
}
