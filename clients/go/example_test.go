package holdline_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"holdline.test/holdline"
)

func Example() {
	client, err := holdline.New(os.Getenv("HOLDLINE_TEST_SERVER"))
	if err != nil {
		log.Fatal(err)
	}
	if err := report(context.Background(), client); err != nil {
		log.Fatal(err)
	}
	// Output:
	// only one of us, with a token: true
	// writes the page sales
	// writes the page stock
}

func report(ctx context.Context, client *holdline.Client) error {
	lock, err := client.Lock(ctx, "nightly-report", holdline.Wait(10*time.Second))
	if errors.Is(err, holdline.ErrTimedOut) {
		return fmt.Errorf("another report is under way: %w", err)
	} else if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	fmt.Println("only one of us, with a token:", lock.Token() > 0)

	for _, page := range []string{"sales", "stock"} {
		if err := write(lock.Context(), page); err != nil {
			return err
		}
	}
	return nil
}

// Stops when the lease is lost; the cause says why.
func write(ctx context.Context, page string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Println("writes the page", page)
	return nil
}
