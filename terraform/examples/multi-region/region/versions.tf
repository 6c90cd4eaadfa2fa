terraform {
  required_version = ">= 1.8"

  # A file in development; any other backend with a lock in earnest: one state per region.
  backend "local" {}

  required_providers {
    kubernetes = { source = "hashicorp/kubernetes", version = "~> 3.0" }
    helm       = { source = "hashicorp/helm", version = "~> 3.0" }
  }
}

provider "kubernetes" {
  config_path    = local.region.kubernetes.kubeconfig
  config_context = local.region.kubernetes.context
}

provider "helm" {
  kubernetes = {
    config_path    = local.region.kubernetes.kubeconfig
    config_context = local.region.kubernetes.context
  }
}
