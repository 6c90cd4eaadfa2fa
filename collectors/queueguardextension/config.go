package queueguardextension

import (
	"errors"

	"go.opentelemetry.io/collector/component"
)

// Config of the extension.
type Config struct {
	// Directory is that of file_storage.
	Directory string `mapstructure:"directory"`
}

func createDefaultConfig() component.Config { return &Config{} }

// Validate names the wrong key.
func (c *Config) Validate() error {
	if c.Directory == "" {
		return errors.New("directory: must name the folder of file_storage")
	}
	return nil
}
