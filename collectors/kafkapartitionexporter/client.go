package kafkapartitionexporter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// client holds a franz-go client and replaces it once it can never write again.
type client struct {
	connect func() (*kgo.Client, error)

	mu     sync.RWMutex
	now    *kgo.Client
	closed bool
}

func newClient(options []kgo.Opt) (*client, error) {
	connect := func() (*kgo.Client, error) { return kgo.NewClient(options...) }
	first, err := connect()
	if err != nil {
		return nil, err
	}
	return &client{connect: connect, now: first}, nil
}

func (c *client) get() *kgo.Client {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now
}

// renew replaces a client that is spent. It does so once, however many writers report it.
func (c *client) renew(spent *kgo.Client) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.now != spent {
		return nil
	}
	fresh, err := c.connect()
	if err != nil {
		return err
	}
	c.now = fresh
	spent.Close()
	return nil
}

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.now.Close()
	}
}

// spent reports whether the broker has refused this client a producer id, most likely because a
// permission is missing. franz-go (producer.go, doInitProducerID) keeps such an answer for good: it
// fails all later messages with it, without asking again. It does not keep answers that it wraps.
// `why` is the error with which a message failed.
func spent(ctx context.Context, client *kgo.Client, timeout time.Duration, why error) bool {
	var refused *kerr.Error
	if !errors.As(why, &refused) || refused.Retriable {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _, err := client.ProducerID(ctx)
	kept, unwrapped := err.(*kerr.Error) //nolint:errorlint // a wrapped error is not the one that franz-go keeps
	return unwrapped && !kept.Retriable
}
