package kubeletcpureceiver

import (
	"errors"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/scraper/scraperhelper"
)

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// Config is the receiver's section of the collector's configuration.
type Config struct {
	scraperhelper.ControllerConfig `mapstructure:",squash"`
	// ClientConfig describes the kubelet: endpoint (https), tls, timeout.
	confighttp.ClientConfig `mapstructure:",squash"`
	// TokenFile holds the bearer token. It is read at every scrape, because Kubernetes rotates it.
	TokenFile string `mapstructure:"token_file"`
	// ServiceLabel is the pod label whose value is the service's name.
	ServiceLabel string `mapstructure:"service_label"`
	// Sidecars are names of containers that are never the service itself.
	Sidecars []string `mapstructure:"sidecars"`
}

func createDefaultConfig() component.Config {
	controller := scraperhelper.NewDefaultControllerConfig()
	controller.CollectionInterval = 5 * time.Second
	client := confighttp.NewDefaultClientConfig()
	client.Timeout = 4 * time.Second
	client.TLS.CAFile = serviceAccount + "ca.crt"
	return &Config{ControllerConfig: controller, ClientConfig: client, TokenFile: serviceAccount + "token"}
}

// Validate reports every wrong key.
func (c *Config) Validate() error {
	var wrong []error
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" {
		wrong = append(wrong, errors.New("endpoint: must be https://host:port, because it receives the token"))
	}
	if c.TokenFile == "" {
		wrong = append(wrong, errors.New("token_file: must name a file"))
	}
	if c.ServiceLabel == "" {
		wrong = append(wrong, errors.New("service_label: must name a pod label"))
	}
	return errors.Join(wrong...)
}
