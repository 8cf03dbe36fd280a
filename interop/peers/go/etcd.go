package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// One client a process. Each contender has a session, because a session holds a name only once.
func openEtcd(servers []string) (system, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   servers,
		DialTimeout: 30 * time.Second,
		Logger:      zap.NewNop(),
	})
	background := context.Background()
	return func() (contender, error) {
		session, err := concurrency.NewSession(client)
		return func(name string) (func() error, error) {
			mutex := concurrency.NewMutex(session, "/peers/"+name)
			err := mutex.Lock(background)
			return func() error { return mutex.Unlock(background) }, err
		}, err
	}, err
}
