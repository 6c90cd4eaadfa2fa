package kafkapartitionexporter

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// credentials returns the user and password for one authentication.
type credentials func() (user, password string, err error)

// mechanisms maps each SASL mechanism with user and password to its constructor.
var mechanisms = map[string]func(credentials) sasl.Mechanism{
	"PLAIN": func(get credentials) sasl.Mechanism {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			user, password, err := get()
			return plain.Auth{User: user, Pass: password}, err
		})
	},
	"SCRAM-SHA-256": func(get credentials) sasl.Mechanism { return scram.Sha256(scramAuth(get)) },
	"SCRAM-SHA-512": func(get credentials) sasl.Mechanism { return scram.Sha512(scramAuth(get)) },
}

func scramAuth(get credentials) func(context.Context) (scram.Auth, error) {
	return func(context.Context) (scram.Auth, error) {
		user, password, err := get()
		return scram.Auth{User: user, Pass: password}, err
	}
}

// mechanism returns how a client authenticates. It returns an error when a file that it needs
// cannot be used now.
func (c *SASLConfig) mechanism(ctx context.Context) (sasl.Mechanism, error) {
	if _, _, err := c.credentials(); err != nil {
		return nil, err
	}
	if c.Mechanism == oauthBearer {
		tokens, err := newTokens(ctx, c)
		if err != nil {
			return nil, err
		}
		return oauth.Oauth(tokens.auth), nil
	}
	return mechanisms[c.Mechanism](c.credentials), nil
}

// credentials reads the password file each time, so that a rotated password needs no restart.
func (c *SASLConfig) credentials() (user, password string, err error) {
	content, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", "", fmt.Errorf("sasl::password_file: %w", err)
	}
	password = strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", "", fmt.Errorf("sasl::password_file: %s is empty", c.PasswordFile)
	}
	return c.Username, password, nil
}
