// The kubelet's end of `kubectl port-forward` for pods that nobody runs: each is an
// address on this host.
//
//	port-forwarder LISTEN CERTIFICATE KEY NAMESPACE/POD=ADDRESS...
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const (
	idleTimeout           = time.Hour
	streamCreationTimeout = 30 * time.Second
)

// forwarder has the address of each pod, whatever the port.
type forwarder map[string]string

// PortForward copies in both directions until both sides have ended.
func (f forwarder) PortForward(
	_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser,
) error {
	defer stream.Close()
	address, known := f[pod]
	if !known {
		return fmt.Errorf("no pod %s runs here, wanted for port %d", pod, port)
	}
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		io.Copy(connection, stream)
		connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func (f forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	namespace, pod := req.PathValue("namespace"), req.PathValue("pod")
	options, err := portforward.NewV4Options(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(
		w, req, f, namespace+"/"+pod, req.PathValue("uid"), options,
		idleTimeout, streamCreationTimeout, portforward.SupportedProtocols,
	)
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("wanted LISTEN CERTIFICATE KEY NAMESPACE/POD=ADDRESS...")
	}
	pods := forwarder{}
	for _, argument := range os.Args[4:] {
		pod, address, _ := strings.Cut(argument, "=")
		pods[pod] = address
	}
	mux := http.NewServeMux()
	mux.Handle("/portForward/{namespace}/{pod}", pods)
	mux.Handle("/portForward/{namespace}/{pod}/{uid}", pods)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok")
	})
	log.Fatal(http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], mux))
}
