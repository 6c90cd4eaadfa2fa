package queueguardextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

// NewFactory returns the factory of extensions of type queue_guard.
func NewFactory() extension.Factory {
	return extension.NewFactory(component.MustNewType("queue_guard"), createDefaultConfig,
		func(_ context.Context, set extension.Settings, config component.Config) (extension.Extension, error) {
			return &guard{directory: config.(*Config).Directory, logger: set.Logger}, nil
		}, component.StabilityLevelBeta)
}
