"""As much of MLflow as macaw.track uses: its runs are in mlflow.json of the store."""
