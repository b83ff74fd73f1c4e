// Package testserver starts tantalum-server where the tests of Kubernetes' storage start an embedded etcd. It stands in for the package of
// this name in k8s.io/apiserver, and has the functions that those tests call.
package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// The line with which tantalum-server says where it serves clients.
const serving = "serving clients at "

// NewTestConfig returns what a test may change before it starts a server: those fields of etcd's configuration that `flags` knows.
func NewTestConfig(t testing.TB) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "data")
	return cfg
}

func flags(cfg *embed.Config) []string {
	args := []string{"serve", cfg.Dir, "--listen", "localhost:0"}
	if tls := cfg.ClientTLSInfo; tls.CertFile != "" {
		args = append(args, "--cert-file", tls.CertFile, "--key-file", tls.KeyFile)
		if tls.TrustedCAFile != "" {
			args = append(args, "--trusted-ca-file", tls.TrustedCAFile)
		}
	}
	if cfg.QuotaBackendBytes != 0 {
		args = append(args, "--quota-backend-bytes", fmt.Sprint(cfg.QuotaBackendBytes))
	}
	if interval := cfg.WatchProgressNotifyInterval; interval != 0 {
		args = append(args, "--watch-progress-notify-interval-s", fmt.Sprint(int(interval.Seconds())))
	}
	return args
}

// RunEtcd starts a server, which is stopped when the test ends, and returns a client of it.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	server := exec.Command(os.Getenv("TANTALUM_SERVER"), flags(cfg)...)
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatalf("tantalum-server does not start: %v", err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("tantalum-server does not stop as it should: %v", err)
		}
	})
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if at, ok := strings.CutPrefix(lines.Text(), serving); ok {
				address <- at
				break
			}
		}
		close(address)
		io.Copy(io.Discard, output)
	}()
	endpoint := url.URL{Scheme: "http"}
	select {
	case endpoint.Host = <-address:
	case <-time.After(time.Minute):
	}
	if endpoint.Host == "" {
		t.Fatal("tantalum-server does not serve")
	}
	if cfg.ClientTLSInfo.CertFile != "" {
		endpoint.Scheme = "https"
	}
	tls, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.New(clientv3.Config{
		TLS:         tls,
		Endpoints:   []string{endpoint.String()},
		DialTimeout: 10 * time.Second,
		Logger:      zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named("etcd-client"),
	})
	if err != nil {
		t.Fatal(err)
	}
	client.KV = storagetesting.NewKVRecorder(client.KV)
	client.Kubernetes = storagetesting.NewKubernetesRecorder(client.Kubernetes)
	return client
}
