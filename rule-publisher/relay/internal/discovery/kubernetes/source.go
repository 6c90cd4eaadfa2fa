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
	watching "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

// settle is how long changes are gathered, because one rollout changes many slices.
const settle = 50 * time.Millisecond

// logOnce redirects the Kubernetes client's log, which is one for the whole process, to ours.
var logOnce sync.Once

// Source watches the EndpointSlices of one cluster.
type Source struct {
	spec     *spillwayv1.KubernetesEndpoints
	client   rest.Interface
	counters *count.Counters
	log      *slog.Logger

	mu      sync.Mutex
	failed  map[string]bool // by namespace, as last logged
	ready   map[string]table.Readiness
	ignored []string
}

// New creates a source from an entry of the endpoints file. It sends no request yet. The error
// names the wrong key.
func New(spec *spillwayv1.KubernetesEndpoints, counters *count.Counters, log *slog.Logger) (*Source, error) {
	_, wrongSelector := labels.Parse(spec.GetSelector())
	if wrongSelector != nil {
		wrongSelector = fmt.Errorf("selector: %q must be a label selector: %w", spec.GetSelector(), wrongSelector)
	}
	config, err := restConfig(spec)
	if err := errors.Join(wrongSelector, err); err != nil {
		return nil, err
	}
	logOnce.Do(func() { klog.SetSlogLogger(log) })
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Source{spec: spec, client: client, counters: counters, log: log.With("in", spec.GetCluster()),
		failed: map[string]bool{}}, nil
}

// restConfig returns a client configuration for EndpointSlices alone. A client of every API group
// would make up most of the relay.
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

// Run watches until the context ends. Nothing is passed on before every namespace has been listed.
// After that, the last good slices stay in force while the API server is unreachable.
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

// Readiness returns how many pods each service has, and how many of them are ready. It is nil while
// that is unknown, because some namespace was not listed yet, or the API does not answer.
func (s *Source) Readiness() map[string]table.Readiness {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, failed := range s.failed {
		if failed {
			return nil
		}
	}
	return s.ready
}

// follow passes on the endpoints of the informers' current slices, at the start and after each
// change.
func (s *Source) follow(ctx context.Context, informers []cache.SharedIndexInformer, changed <-chan struct{}, found func(table.Found)) {
	var reported table.Found
	for {
		var all []*discovery.EndpointSlice
		for _, informer := range informers {
			for _, object := range informer.GetStore().List() {
				all = append(all, object.(*discovery.EndpointSlice))
			}
		}
		now, ignored := endpointsOf(s.spec, all)
		s.tellIgnored(ignored)
		s.setReadiness(readinessOf(s.spec, all))
		if reported == nil || !reflect.DeepEqual(now, reported) {
			reported = now
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

func (s *Source) setReadiness(ready map[string]table.Readiness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

// inform creates the informer of one namespace's EndpointSlices. It calls `signal` at each change.
func (s *Source) inform(namespace string, signal func()) (cache.SharedIndexInformer, error) {
	selected := func(options *meta.ListOptions) { options.LabelSelector = s.spec.GetSelector() }
	listWatch := cache.NewFilteredListWatchFromClient(s.client, "endpointslices", namespace, selected)
	s.observe(listWatch, namespace)
	informer := cache.NewSharedIndexInformer(listWatch, &discovery.EndpointSlice{}, 0, cache.Indexers{})
	slim := func(object any) (any, error) {
		if slice, ok := object.(*discovery.EndpointSlice); ok {
			slice.ManagedFields, slice.Annotations = nil, nil
		}
		return object, nil
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(any, any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	return informer, errors.Join(err, informer.SetTransform(slim))
}

// observe wraps list and watch to see the result of every request. The informer's own error handler
// is not called for errors that it retries.
func (s *Source) observe(lw *cache.ListWatch, namespace string) {
	list, watch := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
		result, err := list(ctx, options)
		s.answered(ctx, namespace, err)
		return result, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, options meta.ListOptions) (watching.Interface, error) {
		result, err := watch(ctx, options)
		s.answered(ctx, namespace, err)
		return result, err
	}
}

// answered counts each failed request, and logs each change of state once.
func (s *Source) answered(ctx context.Context, namespace string, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.failed[namespace]
	s.failed[namespace] = err != nil
	switch {
	case err != nil && !failed:
		s.log.Warn("the Kubernetes API does not answer; the last EndpointSlices stay", "namespace", namespace, "error", err)
	case err == nil && failed:
		s.log.Info("the Kubernetes API answers again", "namespace", namespace)
	}
	if err != nil {
		s.counters.Add(count.KubernetesErrors)
	}
}

// tellIgnored counts and logs the reasons that are new since the previous call.
func (s *Source) tellIgnored(ignored []string) {
	for _, text := range ignored {
		if _, before := slices.BinarySearch(s.ignored, text); !before {
			s.counters.Add(count.EndpointsIgnored)
			s.log.Warn("endpoints are ignored", "reason", text)
		}
	}
	s.ignored = ignored
}
