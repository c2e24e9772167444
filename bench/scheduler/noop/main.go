// A kube-scheduler extender that decides nothing: all names pass, all score the same.
//
// It decodes and encodes with encoding/json through structs shaped like the upstream
// ones, as an extender in Go does, and thinks about nothing in between.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
)

// The part of a v1.Pod that an extender for GPUs would read.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeSelector map[string]string `json:"nodeSelector"`
		Containers   []struct {
			Name      string `json:"name"`
			Resources struct {
				Limits   map[string]string `json:"limits"`
				Requests map[string]string `json:"requests"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
}

type nodeList struct {
	Items []json.RawMessage `json:"items"`
}

type extenderArgs struct {
	Pod       *pod
	Nodes     *nodeList
	NodeNames *[]string
}

type extenderFilterResult struct {
	Nodes                      *nodeList
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

func filter(args extenderArgs) any {
	return extenderFilterResult{NodeNames: args.NodeNames}
}

func prioritize(args extenderArgs) any {
	scores := make([]hostPriority, len(*args.NodeNames))
	for i, name := range *args.NodeNames {
		scores[i] = hostPriority{Host: name, Score: 5}
	}
	return scores
}

func serve(verb func(extenderArgs) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var args extenderArgs
		err := json.NewDecoder(r.Body).Decode(&args)
		if err != nil || args.Pod == nil || args.NodeNames == nil {
			http.Error(w, "wanted Pod and NodeNames", http.StatusBadRequest)
			return
		}
		body, err := json.Marshal(verb(args))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if _, err := w.Write(body); err != nil {
			log.Print(err)
		}
	}
}

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /scheduler/filter", serve(filter))
	http.HandleFunc("POST /scheduler/prioritize", serve(prioritize))
	http.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
