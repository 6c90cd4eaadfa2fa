package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

// settle is how long changes are gathered: one rollout changes many slices.
const settle = 50 * time.Millisecond

// Source is the EndpointSlices of one cluster.
type Source struct {
	spec     *spillwayv1.KubernetesEndpoints
	client   rest.Interface
	counters *count.Counters
	log      *slog.Logger

	mu      sync.Mutex
	failure string // of the API, as last logged
	ignored []string
}

// New reads what the entry names, and asks nothing yet. The error names the wrong key.
func New(spec *spillwayv1.KubernetesEndpoints, counters *count.Counters, log *slog.Logger) (*Source, error) {
	_, wrongSelector := labels.Parse(spec.GetSelector())
	if wrongSelector != nil {
		wrongSelector = fmt.Errorf("selector: %q must be a label selector: %w", spec.GetSelector(), wrongSelector)
	}
	config, err := restConfig(spec)
	if err := errors.Join(wrongSelector, err); err != nil {
		return nil, err
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Source{spec: spec, client: client, counters: counters, log: log.With("in", spec.GetCluster())}, nil
}

// restConfig is for EndpointSlices alone: the client of every API group would be most of the relay.
func restConfig(spec *spillwayv1.KubernetesEndpoints) (config *rest.Config, err error) {
	if spec.GetKubeconfig() == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("kubeconfig: absent, and there is no service account of a pod: %w", err)
		}
	} else {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: spec.GetKubeconfig()},
			&clientcmd.ConfigOverrides{CurrentContext: spec.GetContext()})
		if config, err = loader.ClientConfig(); err != nil {
			return nil, fmt.Errorf("kubeconfig: %q, context %q: %w", spec.GetKubeconfig(), spec.GetContext(), err)
		}
	}
	scheme := runtime.NewScheme()
	if err := discovery.AddToScheme(scheme); err != nil {
		return nil, err
	}
	meta.AddToGroupVersion(scheme, discovery.SchemeGroupVersion)
	config.GroupVersion = &discovery.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = "spillway-relay"
	return config, nil
}

// Run until the context ends. Nothing is told before every namespace was listed; after that the last
// good slices stay in force while the API server is away.
func (s *Source) Run(ctx context.Context, found func(table.Found)) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var informers []cache.SharedIndexInformer
	var synced []cache.InformerSynced
	var running sync.WaitGroup
	defer running.Wait()
	for _, namespace := range s.spec.GetNamespaces() {
		informer, err := s.inform(namespace, signal)
		if err != nil {
			s.log.Error("EndpointSlices cannot be watched", "namespace", namespace, "error", err)
			return
		}
		informers, synced = append(informers, informer), append(synced, informer.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	s.follow(ctx, informers, changed, found)
}

// follow tells what the informers have, at each change of it.
func (s *Source) follow(ctx context.Context, informers []cache.SharedIndexInformer, changed <-chan struct{}, found func(table.Found)) {
	var told table.Found
	for {
		var all []*discovery.EndpointSlice
		for _, informer := range informers {
			for _, object := range informer.GetStore().List() {
				all = append(all, object.(*discovery.EndpointSlice))
			}
		}
		now, ignored := endpointsOf(s.spec, all)
		s.tellIgnored(ignored)
		if told == nil || !reflect.DeepEqual(now, told) {
			told = now
			found(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
	}
}

func (s *Source) inform(namespace string, signal func()) (cache.SharedIndexInformer, error) {
	selected := func(options *meta.ListOptions) { options.LabelSelector = s.spec.GetSelector() }
	informer := cache.NewSharedIndexInformer(
		cache.NewFilteredListWatchFromClient(s.client, "endpointslices", namespace, selected),
		&discovery.EndpointSlice{}, 0, cache.Indexers{})
	slim := func(object any) (any, error) {
		if slice, ok := object.(*discovery.EndpointSlice); ok {
			slice.ManagedFields, slice.Annotations = nil, nil
		}
		return object, nil
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.works(); signal() },
		UpdateFunc: func(any, any) { s.works(); signal() },
		DeleteFunc: func(any) { s.works(); signal() },
	})
	return informer, errors.Join(err, informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(
		func(_ context.Context, _ *cache.Reflector, err error) { s.fails(namespace, err) }))
}

// fails counts each failure and logs each kind once.
func (s *Source) fails(namespace string, err error) {
	s.counters.Add(count.KubernetesErrors)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == err.Error() {
		return
	}
	s.failure = err.Error()
	s.log.Warn("the Kubernetes API does not answer; the last EndpointSlices stay", "namespace", namespace, "error", err)
}

func (s *Source) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != "" {
		s.failure = ""
		s.log.Info("the Kubernetes API answers again")
	}
}

// tellIgnored counts and logs what was not ignored before.
func (s *Source) tellIgnored(ignored []string) {
	for _, text := range ignored {
		if _, before := slices.BinarySearch(s.ignored, text); !before {
			s.counters.Add(count.EndpointsIgnored)
			s.log.Warn("endpoints are ignored", "reason", text)
		}
	}
	s.ignored = ignored
}
