package queueguardextension

import (
	"errors"

	"go.opentelemetry.io/collector/component"
)

// Config is the extension's section of the collector's configuration.
type Config struct {
	// Directory is the directory of file_storage.
	Directory string `mapstructure:"directory"`
}

func createDefaultConfig() component.Config { return &Config{} }

// Validate reports the wrong key.
func (c *Config) Validate() error {
	if c.Directory == "" {
		return errors.New("directory: must name the folder of file_storage")
	}
	return nil
}
