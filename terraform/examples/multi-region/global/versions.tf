terraform {
  required_version = ">= 1.8"

  # A file in development; any other backend with a lock in earnest: the state of this root holds private keys.
  backend "local" {}

  required_providers {
    kubernetes = { source = "hashicorp/kubernetes", version = "~> 3.0" }
    helm       = { source = "hashicorp/helm", version = "~> 3.0" }
    tls        = { source = "hashicorp/tls", version = "~> 4.0" }
    random     = { source = "hashicorp/random", version = "~> 3.5" }
  }
}

provider "kubernetes" {
  config_path    = local.map.global.kubernetes.kubeconfig
  config_context = local.map.global.kubernetes.context
}

provider "helm" {
  kubernetes = {
    config_path    = local.map.global.kubernetes.kubeconfig
    config_context = local.map.global.kubernetes.context
  }
}
